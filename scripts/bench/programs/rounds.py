"""Programs that take turns: each is a process that answers "run N" with the seconds of N steps."""

import math
import os
import pathlib
import queue
import signal
import statistics
import subprocess
import tempfile
import threading
import time


class Failed(Exception):
    """A program ended, or did not answer in time; the text names it and gives its last output."""


class Late(Failed):
    """A program did not answer in time."""


class Program:
    """One competitor: how it is started, and its running process."""

    def __init__(self, name, command, env, patience=600.0, until=math.inf):
        self.name, self.command, self.env = name, command, env
        self.patience = patience  # seconds for one answer
        self.until = until  # no answer is waited for after this moment of time.monotonic()
        self.process = None
        self.seconds_a_step = []
        self.steps_done = 0  # of training, in this process
        self.steps_before = 0  # those of them that came before the first round

    def start(self, arguments=()):
        self.log = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(
                [*self.command, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.log,
                env=self.env,
                text=True,
            )
        except OSError as error:
            raise Failed(f"{self.name} does not start: {error}") from None
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
        """Its next line. A program that failed here must be stopped: a late answer of it would be
        taken for that to the next question."""
        wait = max(0.0, min(self.patience, self.until - time.monotonic()))
        try:
            line = self.lines.get(timeout=wait)
        except queue.Empty:
            raise Late(f"{self.name} did not answer in {wait:.0f} s") from None
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
                seconds = float(line)
                self.steps_done += steps
                return seconds
            except ValueError:
                continue  # A greeting.

    def median(self):
        """Seconds a step, the median of the rounds."""
        return statistics.median(self.seconds_a_step)


def descendants(pid):
    """Returns the ids of the processes that `pid` started, directly or through others."""
    children = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = path.read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue  # It has ended.
        children.setdefault(int(parent), []).append(int(path.parent.name))
    found = list(children.get(pid, []))
    for each in found:  # The list grows meanwhile.
        found += children.get(each, [])
    return found


def kill(process):
    """Kills a process and what it started: compilers that outlive it would slow the other programs down."""
    started = descendants(process.pid)
    process.kill()
    process.wait()
    for pid in started:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def stop(*programs, patience=5.0):
    """Asks all to end, and kills those that still run after `patience` seconds, with what they started."""
    running = [program for program in programs if program.process is not None]
    for program in running:
        try:
            program.process.stdin.close()
        except BrokenPipeError:
            pass
    until = time.monotonic() + patience
    for program in running:
        try:
            program.process.wait(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            kill(program.process)
        program.log.close()
        program.process = None


def survivors(programs, action, on_failure):
    """Does `action` with each program. One that fails is told to `on_failure(program, error)` and
    stopped; the result are the others."""
    good = []
    for program in programs:
        try:
            action(program)
            good.append(program)
        except Failed as error:
            on_failure(program, error)
            stop(program, patience=0.0)
    return good


def warm_up(program, warm, seconds, unit, until):
    """Has a program train three times `warm` steps, or fewer if these would end after `until`. Returns the number of
    steps that take about `seconds`. `warm` and the result are multiples of `unit`."""
    if until == math.inf or warm <= unit:
        for _ in range(3):
            seconds_a_step = program.run(warm) / warm
    else:
        # Double the number of steps: the first ones also prepare something, and other programs may slow some down.
        count, largest, left = unit, 0, 3 * warm
        while left > 0:
            took = program.run(count)
            left -= count
            if count >= largest:
                largest, seconds_a_step = count, took / count
            units_in_time = (until - time.monotonic()) / 3 / max(1e-9, took / count) / unit
            if units_in_time < 1:
                break
            count = min(2 * count, left, unit * int(units_in_time))
    program.steps_before = program.steps_done
    return unit * max(1, round(seconds / seconds_a_step / unit))


def take_turns(programs, rounds, seconds, warm, on_failure, unit=1, until=math.inf, on_round=None):
    """Warms the started programs up, then has them do `rounds` rounds of about `seconds` in turn,
    fewer if the next one would end after `until`. The steps of a round are a multiple of `unit`.
    Warming up takes at most half of the time until `until`: programs with long steps do fewer.
    Calls `on_round(programs)` after each round; the result are the programs that lasted."""
    steps = {}
    waiting = len(programs)
    half = until if until == math.inf else (time.monotonic() + until) / 2

    def calibrate(program):
        nonlocal waiting
        now, last = time.monotonic(), program.until
        end = now + (half - now) / waiting
        waiting -= 1
        # A program that hangs must leave the others some time.
        program.until = min(last, now + max(0.0, until - now) / 2)
        steps[program.name] = warm_up(program, warm, seconds, unit, end)
        program.until = last

    def one_round(program):
        count = steps[program.name]
        program.seconds_a_step.append(program.run(count) / count)

    programs = survivors(programs, calibrate, on_failure)
    longest = 0.0
    for number in range(rounds):
        begin = time.monotonic()
        if number > 0 and begin + longest > until:
            break
        programs = survivors(programs, one_round, on_failure)
        longest = max(longest, time.monotonic() - begin)
        if on_round:
            on_round(programs)
    return programs
