"""Stand-in for mlflow: writes what it is called with to $CALLS; while $FAIL is a file, calls fail.

If $TERM_ONCE is a file, SIGTERM interrupts the next batch of metrics."""

import json
import os
import signal
import types

from mlflow import entities as entities


def call(name, *arguments):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps([name, *arguments]) + "\n")


def get_tracking_uri():
    return os.environ.get("MLFLOW_TRACKING_URI", "file:mlruns")


class MlflowClient:
    def get_experiment_by_name(self, name):
        return types.SimpleNamespace(experiment_id="7") if name == "known" else None

    def create_experiment(self, name):
        call("experiment", name)
        return "8"

    def create_run(self, experiment, start_time, run_name):
        with open(os.environ["CALLS"]) as file:
            remote = f"run{sum(json.loads(line)[0] == 'create' for line in file)}"
        call("create", experiment, start_time, run_name)
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=remote))

    def get_run(self, remote):
        params = {}
        for line in open(os.environ["CALLS"]):
            name, *arguments = json.loads(line)
            if name == "param" and arguments[0] == remote:
                params[arguments[1]] = arguments[2]
        return types.SimpleNamespace(data=types.SimpleNamespace(params=params))

    def log_batch(self, remote, metrics=(), params=()):
        assert len(metrics) <= 1000 and len(params) <= 100
        if os.path.exists(os.environ.get("FAIL", "")):
            call("failed")
            raise ConnectionError("no server")
        if metrics and os.path.exists(os.environ.get("TERM_ONCE", "")):
            os.remove(os.environ["TERM_ONCE"])
            os.kill(os.getpid(), signal.SIGTERM)
        for param in params:
            call("param", remote, param.key, param.value)
        for metric in metrics:
            call("metric", remote, metric.key, metric.value, metric.timestamp, metric.step)

    def set_tag(self, remote, key, value):
        call("tag", remote, key, value)

    def update_run(self, remote, status):
        call("status", remote, status)

    def set_terminated(self, remote, status, end_time):
        call("end", remote, status, end_time)

    def log_artifact(self, remote, path):
        call("artifact", remote, os.path.basename(path))
