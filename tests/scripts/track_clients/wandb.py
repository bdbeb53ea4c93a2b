"""Stand-in for wandb: writes what it is called with to the file $CALLS, one JSON object a line."""

import json
import os


def call(name, *arguments):
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps([name, *arguments]) + "\n")


class Config:
    def update(self, values, allow_val_change=False):
        assert allow_val_change
        call("config", values)


class Summary:
    def update(self, values):
        call("summary", values)


class Artifact:
    def __init__(self, name, type):
        self.name, self.files = name, []

    def add_file(self, path):
        self.files.append(os.path.basename(path))


class Run:
    def __init__(self, number):
        self.id, self.url = number, None
        self.config, self.summary = Config(), Summary()

    def __setattr__(self, name, value):
        if name == "notes":
            call("notes", value)
        super().__setattr__(name, value)

    def define_metric(self, name, step_metric=None):
        pass

    def log(self, row):
        call("log", row)

    def log_artifact(self, artifact):
        call("artifact", artifact.name, artifact.files)

    def finish(self, exit_code=0):
        call("finish", exit_code)


def init(project, id, resume, name, config):
    assert resume == "allow"
    call("init", project, id, name)
    return Run(id)
