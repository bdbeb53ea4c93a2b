#!/usr/bin/env python3
"""Tests of scripts/track with stand-ins for wandb and mlflow (tests/scripts/track_clients)."""

import fcntl
import json
import math
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CLIENTS = ROOT / "tests" / "scripts" / "track_clients"
PATIENCE = 60  # seconds until a test gives up

TINY = """version: 1
name: tiny
data: {dataset: synthetic, size: 48, test_size: 6, classes: 3, val_split: 8, batch_size: 8}
model:
  input: [1, 4, 4]
  layers: [{type: Flatten}, {type: Linear, name: fc, out_features: 3}]
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 3}
log: {every: 1}
devices: [cpu]
"""


def line(event, second, **fields):
    return {"v": 1, "event": event, "time": f"2026-11-24T21:05:{second:02}.500Z", "elapsed_s": 1.0, **fields}


START = line("run_start", 0, run="x", step=0)
STEP1 = line("step", 1, epoch=1, step=1, loss=2.5, lr=0.1, grad_norms={"fc.weight": 0.5})
STEP2 = line("step", 2, epoch=1, step=2, loss=None, lr=0.1, nonfinite=["loss"])
EPOCH1 = line("epoch", 3, epoch=1, step=2, loss=2.0, images_per_s=100)
VAL1 = line("eval", 4, epoch=1, step=2, split="val", n=8, unreadable=1, accuracy=0.5, launches="calls")
STEP3 = line("step", 5, epoch=2, step=3, loss=1.0, lr=0.1)
STEP4 = line("step", 6, epoch=2, step=4, loss=0.5, lr=0.1)
TEST = line("eval", 6, epoch=2, step=3, split="test", n=6, accuracy=0.75)
END = line("run_end", 7, status="ok", exit_code=0)
FIRST = [START, STEP1, STEP2, EPOCH1, VAL1]
WHOLE = [*FIRST, STEP3, TEST, END]


class Track(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.run_folder = self.folder / "run"
        self.calls_file = self.folder / "calls"
        self.calls_file.touch()
        self.environment = dict(
            os.environ, PYTHONPATH=str(CLIENTS), PYTHONDONTWRITEBYTECODE="1",
            CALLS=str(self.calls_file), FAIL=str(self.folder / "fail"), MLFLOW_TRACKING_URI="file:x",
        )  # fmt: skip
        for name in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME"):
            self.environment.pop(name, None)

    def make_run(self, lines):
        self.run_folder.mkdir()
        (self.run_folder / ".lock").touch()
        config = {"name": "x", "optimizer": {"type": "SGD", "lr": 0.1}, "devices": ["cpu"]}
        (self.run_folder / "config.yaml").write_text(json.dumps(config))
        self.write_log(lines)

    def write_log(self, lines):
        """Replaces the log as dpt does: by another file."""
        new = self.run_folder / "metrics.jsonl.tmp"
        new.write_text("".join(json.dumps(each) + "\n" for each in lines))
        new.rename(self.run_folder / "metrics.jsonl")

    def append(self, text):
        with open(self.run_folder / "metrics.jsonl", "a") as file:
            file.write(text)

    def end_run(self):
        summary = {"v": 1, "status": "ok", "best": {"val/accuracy": 0.5, "step": 2}, "ledger": {"seconds": 1}}
        (self.run_folder / "summary.json").write_text(json.dumps(summary))

    def lock(self):
        """Holds the lock of the run folder as dpt train does, until it is closed."""
        file = open(self.run_folder / ".lock", "rb+")
        fcntl.flock(file, fcntl.LOCK_EX)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, 0, 0, 0))
        return file

    def track(self, *arguments, run=None):
        service, *rest = arguments
        command = [sys.executable, ROOT / "scripts" / "track", service, run or self.run_folder, *rest]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)

    def track_well(self, *arguments):
        done = self.track(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def follow(self, *arguments, run=None):
        service, *rest = arguments
        process = subprocess.Popen(
            [sys.executable, ROOT / "scripts" / "track", service, run or self.run_folder]
            + ["--follow", "--interval", "0.01", *rest],
            env=self.environment, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.process = process
        return process

    def calls(self, name=None):
        calls = [json.loads(each) for each in self.calls_file.read_text().splitlines()]
        return [each[1:] for each in calls if each[0] == name] if name else calls

    def wait_for(self, holds):
        until = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), until, self.calls())
            if self.process.poll() is not None and not holds():
                self.fail(self.process.stderr.read())
            time.sleep(0.005)

    def metrics(self):
        """Returns "name step" of what MLFlow was told, in order."""
        return [f"{key} {step}" for _, key, _, _, step in self.calls("metric")]

    def test_a_signal_during_an_upload_loses_no_metric(self):
        self.make_run(WHOLE)
        whole = self.track_well("mlflow") and self.metrics()
        (self.run_folder / "logs" / "track-mlflow.json").unlink()
        self.calls_file.write_text("")
        self.environment["TERM_ONCE"] = str(self.folder / "term")
        (self.folder / "term").touch()
        self.assertEqual(self.track("mlflow").returncode, 143)
        self.track_well("mlflow")
        self.assertEqual(sorted(set(self.metrics())), sorted(whole))

    def test_retries_after_a_failed_begin_use_one_remote_run(self):
        self.make_run(WHOLE)
        (self.folder / "fail").touch()
        self.assertEqual(self.track("mlflow").returncode, 1)
        self.assertEqual(self.track("mlflow").returncode, 1)
        (self.folder / "fail").unlink()
        self.track_well("mlflow")
        self.assertEqual(len(self.calls("create")), 1)

    def test_a_missing_client_is_named_with_the_command_that_installs_it(self):
        self.make_run(WHOLE)
        for name in ("wandb", "mlflow"):
            (self.folder / f"{name}.py").write_text(f"raise ImportError('no {name}')\n")
            self.environment["PYTHONPATH"] = str(self.folder)
            done = self.track(name)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"pip install {name}", done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_mistakes(self):
        self.folder.joinpath("empty").mkdir()
        done = self.track("wandb", run=self.folder / "empty")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected a run folder of dpt, found no metrics.jsonl", done.stderr)
        self.assertEqual(self.track("mlflow", "--project", "p").returncode, 2)
        self.assertEqual(self.track("wandb", "--experiment", "e").returncode, 2)
        done = self.track("wandb", "--follow", "--patience", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no run has begun", done.stderr)
        self.assertEqual(self.calls(), [])

    def test_wandb_gets_config_rows_results_and_the_end_once(self):
        self.make_run(WHOLE)
        self.end_run()
        text = self.track_well("wandb", "--project", "p", "--name", "mine")
        self.assertIn("6 new lines uploaded", text)
        ((project, number, name),) = self.calls("init")
        self.assertEqual((project, name), ("p", "mine"))
        self.assertEqual(self.calls("config")[0][0]["optimizer"], {"type": "SGD", "lr": 0.1})
        rows = [row for (row,) in self.calls("log")]
        self.assertEqual(rows[0]["step"], 1)
        self.assertEqual(rows[0]["train/loss"], 2.5)
        self.assertEqual(rows[0]["train/grad_norms/fc.weight"], 0.5)
        self.assertEqual(rows[0]["_timestamp"] % 60, 1.5)
        self.assertTrue(math.isnan(rows[1]["train/loss"]))
        self.assertEqual(rows[2]["train_epoch/images_per_s"], 100)
        self.assertEqual({key for key in rows[3] if "/" in key}, {"val/accuracy"})
        self.assertEqual(rows[5]["test/accuracy"], 0.75)
        self.assertEqual(
            self.calls("summary"),
            [[{"status": "ok", "exit_code": 0, "best.val/accuracy": 0.5, "best.step": 2}]],
        )
        self.assertEqual(self.calls()[-1], ["finish", 0])
        before = self.calls()
        self.assertIn("no new lines", self.track_well("wandb", "--project", "p"))
        self.assertEqual(self.calls(), before)
        # Another project has a run of its own.
        self.track_well("wandb", "--project", "q")
        self.assertNotEqual(self.calls("init")[1][1], number)

    def test_mlflow_gets_parameters_metrics_with_times_and_the_status(self):
        self.make_run(WHOLE)
        self.end_run()
        self.track_well("mlflow", "--experiment", "known")
        ((experiment, begun, name),) = self.calls("create")
        self.assertEqual((experiment, name), ("7", "run"))
        params = {key: value for _, key, value in self.calls("param")}
        self.assertEqual(
            params, {"name": "x", "optimizer.type": "SGD", "optimizer.lr": "0.1", "devices": '["cpu"]'}
        )
        self.assertEqual(
            self.metrics(),
            ["train/loss 1", "train/lr 1", "train/grad_norms/fc.weight 1", "train/loss 2", "train/lr 2"]
            + ["train_epoch/loss 2", "train_epoch/images_per_s 2", "val/accuracy 2", "train/loss 3"]
            + ["train/lr 3", "test/accuracy 3"],
        )
        _, _, value, milliseconds, _ = self.calls("metric")[0]
        self.assertEqual((value, milliseconds), (2.5, begun))
        self.assertEqual(milliseconds % 60000, 1500)
        self.assertIn(["run0", "dpt.best.val/accuracy", "0.5"], self.calls("tag"))
        self.assertEqual(self.calls()[-1][:3], ["end", "run0", "FINISHED"])
        self.assertEqual(self.calls()[-1][3] - begun, 6000)
        before = self.calls()
        self.track_well("mlflow", "--experiment", "known")
        self.assertEqual(self.calls(), before)

    def test_a_resumed_run_goes_on_in_the_same_remote_run(self):
        for status, exit_code, remote in (("stopped", 143, "KILLED"), ("failed", 3, "FAILED")):
            with self.subTest(status):
                self.make_run([*FIRST, line("run_end", 5, status=status, exit_code=exit_code)])
                self.calls_file.write_text("")
                self.track_well("mlflow")
                self.assertEqual(self.calls()[-1][:3], ["end", "run0", remote])
                # Step 2 and what came after it is repeated; the config has changed.
                (self.run_folder / "config.yaml").write_text('{"name": "x", "devices": ["cpu", "cpu"]}')
                resumed = line("run_start", 9, run="x", step=1)
                self.write_log([START, STEP1, resumed, STEP2, EPOCH1, VAL1, STEP3, TEST, END])
                self.track_well("mlflow")
                self.assertEqual(len(self.calls("create")), 1)
                self.assertEqual(self.calls("status"), [["run0", "RUNNING"]] * 2)
                self.assertEqual(len(self.metrics()), len(set(self.metrics())))
                self.assertEqual(self.metrics()[-3:], ["train/loss 3", "train/lr 3", "test/accuracy 3"])
                self.assertIn(["run0", "resumed.devices", '["cpu", "cpu"]'], self.calls("tag"))
                self.assertEqual(self.calls()[-1][:3], ["end", "run0", "FINISHED"])
                for file in sorted(self.run_folder.rglob("*"), reverse=True):
                    file.rmdir() if file.is_dir() else file.unlink()
                self.run_folder.rmdir()

    def test_a_running_run_is_left_open_and_continued(self):
        self.make_run(FIRST)
        lock = self.lock()
        self.addCleanup(lock.close)
        self.assertIn("is still running", self.track_well("wandb"))
        self.assertEqual(self.calls("summary"), [])
        self.assertEqual(len(self.calls("log")), 4)
        self.append(json.dumps(STEP3) + "\n" + json.dumps(TEST)[:20])
        self.track_well("wandb")
        self.assertEqual(len(self.calls("log")), 5)
        self.assertEqual(self.calls("init")[0], self.calls("init")[1])
        self.append(json.dumps(TEST)[20:] + "\n")
        lock.close()
        self.track_well("wandb")  # killed: there is no run_end
        self.assertEqual(len(self.calls("log")), 6)
        self.assertEqual(self.calls("summary"), [[{"status": "killed"}]])
        self.assertEqual(self.calls()[-1], ["finish", 1])

    def test_each_end_of_a_run_is_reported(self):
        stopped = line("run_end", 5, status="stopped", exit_code=143)
        self.make_run([*FIRST, stopped])
        self.track_well("mlflow")
        with self.lock():
            self.append(json.dumps(line("run_start", 9, run="x", step=2)) + "\n" + json.dumps(STEP3) + "\n")
            self.track_well("mlflow")
        self.assertEqual(len(self.calls("end")), 1)
        self.append(json.dumps(stopped) + "\n")
        self.track_well("mlflow")
        self.assertEqual(len(self.calls("end")), 2)
        self.append(json.dumps(line("run_start", 10, run="x", step=3)) + "\n")
        self.track_well("mlflow")
        self.assertEqual(self.calls("tag")[-1], ["run0", "dpt.status", "killed"])

    def test_follow_survives_a_part_of_a_line_a_replaced_log_and_a_resume(self):
        self.make_run([START])
        lock = self.lock()
        process = self.follow("mlflow", "--patience", "1000")
        text = json.dumps(STEP2) + "\n"
        self.append(json.dumps(STEP1) + "\n" + text[:30])  # one write: both are read at once
        self.wait_for(lambda: "train/lr 1" in self.metrics())
        self.append(text[30:] + json.dumps(EPOCH1)[:7])
        self.wait_for(lambda: "train/lr 2" in self.metrics())
        lock.close()  # killed; resumed from step 1, which rewrites the log
        lock = self.lock()
        self.write_log([START, STEP1, line("run_start", 9, run="x", step=1)])
        self.append(json.dumps(STEP2) + "\n" + json.dumps(EPOCH1) + "\n" + json.dumps(VAL1) + "\n")
        self.wait_for(lambda: "val/accuracy 2" in self.metrics())
        # A stop is not the end while the run may be resumed.
        lock.close()
        stopped = line("run_end", 9, status="stopped", exit_code=143)
        self.append(json.dumps(STEP3) + "\n" + json.dumps(stopped) + "\n")
        self.wait_for(lambda: "train/lr 3" in self.metrics())
        lock = self.lock()
        self.end_run()
        resumed = line("run_start", 9, run="x", step=3)
        self.append(json.dumps(resumed) + "\n" + json.dumps(TEST) + "\n" + json.dumps(END) + "\n")
        self.wait_for(lambda: "test/accuracy 3" in self.metrics())
        # Nor is run_end while the process of the run is still there.
        self.append(json.dumps(STEP4) + "\n")
        self.wait_for(lambda: "train/lr 4" in self.metrics())
        lock.close()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual(len(self.metrics()), len(set(self.metrics())))
        self.assertEqual(len(self.calls("create")), 1)
        self.assertEqual(self.calls()[-1][:3], ["end", "run0", "FINISHED"])

    def test_follow_gives_a_run_of_overwrite_a_remote_run_of_its_own(self):
        self.make_run([START, STEP1])
        lock = self.lock()
        process = self.follow("mlflow")
        self.wait_for(lambda: "train/lr 1" in self.metrics())
        self.write_log([line("run_start", 30, run="x", step=0), STEP1, END])
        self.wait_for(lambda: len(self.calls("create")) == 2)
        lock.close()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertEqual([call[:2] for call in self.calls("end")], [["run0", "KILLED"], ["run1", "FINISHED"]])
        self.assertEqual(self.metrics().count("train/loss 1"), 2)
        # The run before it, brought back by dpt runs --restore, has its own again.
        self.write_log([START, STEP1, STEP2])
        self.track_well("mlflow")
        self.assertEqual(len(self.calls("create")), 2)
        self.assertEqual(self.calls("metric")[-1][0], "run0")

    def test_follow_ends_after_its_patience_with_a_killed_run(self):
        self.make_run(FIRST)
        process = self.follow("wandb", "--patience", "0")
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertIn("ended without saying so", process.stderr.read())
        self.assertEqual(self.calls()[-1], ["finish", 1])

    def test_a_signal_ends_follow_and_the_next_call_goes_on(self):
        self.make_run(FIRST)
        with self.lock():
            process = self.follow("wandb")
            self.wait_for(lambda: len(self.calls("log")) == 4)
            # A second one would upload the same lines.
            self.assertEqual(self.track("wandb").returncode, 2)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(PATIENCE), 143)
            self.assertEqual(self.calls()[-1], ["finish", 0])
        self.write_log(WHOLE)
        self.track_well("wandb")
        self.assertEqual(len(self.calls("log")), 6)

    def test_a_server_that_is_away_for_a_while_misses_nothing(self):
        self.make_run([START])
        lock = self.lock()
        process = self.follow("mlflow")
        self.append(json.dumps(STEP1) + "\n")
        self.wait_for(lambda: "train/lr 1" in self.metrics())
        (self.folder / "fail").touch()
        self.append(json.dumps(STEP2) + "\n")
        self.wait_for(lambda: self.calls("failed"))
        (self.folder / "fail").unlink()
        self.wait_for(lambda: "train/lr 2" in self.metrics())
        self.append(json.dumps(END) + "\n")
        lock.close()
        self.assertEqual(process.wait(PATIENCE), 0)
        self.assertIn(": 2 new lines uploaded", process.stderr.read())
        self.assertEqual(len(self.metrics()), len(set(self.metrics())))
        # A call that does not follow says so and ends; the next one uploads the rest.
        self.write_log(WHOLE)
        (self.folder / "fail").touch()
        done = self.track("mlflow")
        self.assertEqual(done.returncode, 1)
        self.assertIn("track: error: ConnectionError: no server", done.stderr)
        (self.folder / "fail").unlink()
        self.track_well("mlflow")
        self.assertIn("test/accuracy 3", self.metrics())
        self.assertEqual(len(self.metrics()), len(set(self.metrics())))

    def test_artifacts_and_the_verdict_are_uploaded_when_they_are_new(self):
        self.make_run(WHOLE)
        self.end_run()
        for name in ("report.html", "best.safetensors"):
            (self.run_folder / name).write_text("x")
        verdict = self.folder / "verdict.md"
        verdict.write_text("# dpt train: all requirements met\n")
        arguments = ["wandb", "--artifacts", "--verdict", str(verdict)]
        self.track_well(*arguments)
        ((_, files),) = self.calls("artifact")
        self.assertEqual(files, ["config.yaml", "summary.json", "report.html", "best.safetensors"])
        self.assertEqual(self.calls("notes"), [["# dpt train: all requirements met\n"]])
        before = self.calls()
        self.track_well(*arguments)
        self.assertEqual(self.calls(), before)
        (self.run_folder / "report.html").write_text("longer")
        self.track_well(*arguments)
        self.assertEqual(self.calls("artifact")[1][1], ["report.html"])
        self.assertEqual(len(self.calls("notes")), 1)
        self.track_well("mlflow", "--artifacts", "--verdict", str(verdict))
        self.assertEqual(
            [name for _, name in self.calls("artifact")[2:]],
            ["verdict.md", "config.yaml", "summary.json", "report.html", "best.safetensors"],
        )

    def dpt(self, *arguments):
        return subprocess.run(
            [os.environ["DPT"], *arguments], cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE
        )

    def test_runs_of_the_program(self):
        (self.folder / "tiny.yaml").write_text(TINY)
        run = self.folder / "runs" / "tiny"
        process = self.follow("mlflow", "--patience", "1000", run=run)  # before the run begins
        trained = self.dpt("train", "tiny.yaml")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        self.assertEqual(process.wait(PATIENCE), 0)
        lines = [json.loads(each) for each in (run / "metrics.jsonl").read_text().splitlines()]
        losses = [f"train/loss {each['step']}" for each in lines if each["event"] == "step"]
        self.assertEqual([each for each in self.metrics() if each.startswith("train/loss")], losses)
        self.assertEqual(len(losses), 15)
        self.assertEqual(len([each for each in self.metrics() if each.startswith("val/accuracy")]), 3)
        self.assertEqual(len([each for each in self.metrics() if each.startswith("test/accuracy")]), 1)
        self.assertEqual(self.calls()[-1][:3], ["end", "run0", "FINISHED"])
        # The file of track does not disturb dpt, nor dpt the file.
        again = self.dpt("train", "tiny.yaml", "--overwrite")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(self.track("mlflow", run=run).returncode, 0)
        self.assertEqual(len(self.calls("create")), 2)
        state = json.loads((run / "logs" / "track-mlflow.json").read_text())
        self.assertEqual(len(state["runs"]), 2)


if __name__ == "__main__":
    unittest.main()
