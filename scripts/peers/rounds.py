"""Programs that take turns: each is a process that answers "run N" with the seconds of N steps."""

import queue
import statistics
import subprocess
import tempfile
import threading


class Failed(Exception):
    """A program stopped, or did not answer in time; the text says which and its last words."""


class Program:
    """One competitor: how it is started, and its running process."""

    def __init__(self, name, command, env, patience=600):
        self.name, self.command, self.env = name, command, env
        self.patience = patience  # seconds for one answer
        self.process = None
        self.seconds_a_step = []

    def start(self, arguments=()):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [*self.command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=self.env,
            text=True,
        )
        # A thread reads, so that waiting for an answer can end.
        self.lines = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()

    @staticmethod
    def _read(process, lines):
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def last_words(self):
        self.log.seek(0)
        return self.log.read()[-3000:]

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # line() tells why.

    def line(self):
        try:
            line = self.lines.get(timeout=self.patience)
        except queue.Empty:
            raise Failed(f"{self.name} did not answer in {self.patience:.0f} s") from None
        if not line:
            self.process.wait()
            raise Failed(f"{self.name} stopped:\n{self.last_words()}")
        return line

    def run(self, steps):
        """Seconds that `steps` steps took."""
        self.ask(f"run {steps}")
        while True:
            line = self.line()
            try:
                return float(line)
            except ValueError:
                continue  # A greeting.

    def stop(self):
        if self.process is None:
            return
        try:
            self.process.stdin.close()
            self.process.wait(timeout=20)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self.process.kill()
            self.process.wait()
        self.process = None

    def median(self):
        """Seconds a step, the median of the rounds."""
        return statistics.median(self.seconds_a_step)


def take_turns(programs, rounds, seconds, warm, unit=1):
    """Warms the started programs up, then has them do `rounds` rounds of about `seconds` in turn.
    The steps of a round are a multiple of `unit`."""
    steps = {}
    for program in programs:
        program.run(warm)
        units = round(seconds / (program.run(warm) / warm) / unit)
        steps[program.name] = unit * max(1, units)
    for _ in range(rounds):
        for program in programs:
            count = steps[program.name]
            program.seconds_a_step.append(program.run(count) / count)
