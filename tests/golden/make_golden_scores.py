#!/usr/bin/env python3
"""Makes tests/golden/scores.json: scikit-learn's F1, precision, recall, AUROC and average precision.

    python3 tests/golden/make_golden_scores.py         needs numpy and scikit-learn

Each of 200 random cases has the outputs of its samples, in sixteenths, so that many are equal, and either
their labels or their multi-hot targets with a threshold (one number, or one for each label), also in
sixteenths. Cases have classes that no sample is of, classes that every sample is of, and classes that are
never predicted. "values" has each metric for each average; a value that does not exist is null, and of
"per_class" a class that is left out of the macro average. "best_f1" is the largest F1 of each label over
all thresholds, null without positive samples.

A class is left out where scikit-learn leaves it out: of F1, precision and recall if it neither occurs nor
is predicted (labels only); of AUROC without positive or without negative samples. Everything else is
divided as with zero_division=0.
"""

import json
import pathlib
import random
import warnings

import numpy as np
from sklearn import metrics

HERE = pathlib.Path(__file__).resolve().parent
CASES = 200
STEPS = 16
SCORES = {"f1": metrics.f1_score, "precision": metrics.precision_score, "recall": metrics.recall_score}


def number(value):
    return None if value is None or np.isnan(value) else float(value)


def areas(hot, outputs):
    return [float(metrics.roc_auc_score(hot[:, c], outputs[:, c])) if 0 < hot[:, c].sum() < len(hot) else None
            for c in range(hot.shape[1])]


def ranking_values(hot, outputs):
    """One-vs-rest: for classes, `hot` has a one at each sample's label."""
    by_class = areas(hot, outputs)
    defined = [value for value in by_class if value is not None]
    flat_hot, flat = hot.ravel(), outputs.ravel()
    has_both = 0 < flat_hot.sum() < flat_hot.size
    auroc = {"macro": float(np.mean(defined)) if defined else None, "per_class": by_class,
             "micro": float(metrics.roc_auc_score(flat_hot, flat)) if has_both else None}
    precisions = [abs(float(metrics.average_precision_score(hot[:, c], outputs[:, c])))
                  for c in range(hot.shape[1])]
    macro = precisions[0] if hot.shape[1] == 1 else abs(metrics.average_precision_score(hot, outputs, average="macro"))
    return {"auroc": auroc,
            "average_precision": {"macro": number(macro), "per_class": precisions,
                                  "micro": abs(float(metrics.average_precision_score(flat_hot, flat)))}}


def label_scores(labels, predictions, classes):
    seen = set(labels.tolist()) | set(predictions.tolist())
    values = {}
    for name, score in SCORES.items():
        by_class = score(labels, predictions, labels=range(classes), average=None, zero_division=0)
        values[name] = {
            "per_class": [float(by_class[c]) if c in seen else None for c in range(classes)],
            **{average: number(score(labels, predictions, average=average, zero_division=0))
               for average in ("macro", "micro")}}
    return values


def hot_scores(hot, predicted):
    values = {}
    for name, score in SCORES.items():
        def of(average):
            if hot.shape[1] == 1:
                return float(score(hot.ravel(), predicted.ravel(), average="binary", zero_division=0))
            return float(score(hot, predicted, average=average, zero_division=0))
        by_class = [float(score(hot[:, c], predicted[:, c], average="binary", zero_division=0))
                    for c in range(hot.shape[1])]
        values[name] = {"per_class": by_class, "macro": of("macro"), "micro": of("micro")}
    return values


def best_f1(hot, outputs):
    if hot.sum() == 0:
        return None
    return max(float(metrics.f1_score(hot, outputs >= t, zero_division=0)) for t in set(outputs.tolist()))


def label_case(rng):
    samples, classes = rng.randint(1, 24), rng.randint(2, 6)
    present = rng.sample(range(classes), rng.randint(1, classes))
    labels = np.array([rng.choice(present) for _ in range(samples)])
    outputs = np.array([[rng.randint(0, STEPS) for _ in range(classes)] for _ in range(samples)])
    # A tie goes to the first class, as in dpt.
    predictions = outputs.argmax(axis=1)
    values = label_scores(labels, predictions, classes)
    values.update(ranking_values((labels[:, None] == np.arange(classes)).astype(int), outputs / STEPS))
    return {"classes": classes, "labels": labels.tolist(), "predictions": predictions.tolist(),
            "outputs": outputs.ravel().tolist(), "values": values}


def hot_case(rng):
    samples, labels = rng.randint(1, 24), rng.choice([1, 1, 2, 3, 4, 6])
    shares = [rng.choice([0, 0.1, 0.5, 0.9, 1]) for _ in range(labels)]
    hot = np.array([[int(rng.random() < share) for share in shares] for _ in range(samples)])
    outputs = np.array([[rng.randint(0, STEPS) for _ in range(labels)] for _ in range(samples)])
    many = rng.random() < 0.5
    thresholds = np.array([rng.randint(2, STEPS - 2) for _ in range(labels if many else 1)])
    values = hot_scores(hot, (outputs > thresholds).astype(int))
    values.update(ranking_values(hot, outputs / STEPS))
    return {"classes": labels, "hot": hot.ravel().tolist(), "outputs": outputs.ravel().tolist(),
            "threshold": thresholds.tolist(), "values": values,
            "best_f1": [best_f1(hot[:, c], outputs[:, c]) for c in range(labels)]}


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return round(value, 9) if isinstance(value, float) else value


def main():
    warnings.simplefilter("ignore")
    rng = random.Random(1)
    cases = [label_case(rng) if i % 2 else hot_case(rng) for i in range(CASES)]
    lines = ",\n".join(json.dumps(rounded(case), separators=(",", ":")) for case in cases)
    (HERE / "scores.json").write_text("[\n" + lines + "\n]\n", encoding="utf-8")
    print(f"{len(cases)} cases")


if __name__ == "__main__":
    main()
