"use strict";
// Draws the curves with Chart.js. Everything else of the page is there without it.
(() => {
  const data = JSON.parse(document.getElementById("curve-data").textContent);
  const root = document.documentElement;
  const hidden = new Set();
  let charts = [];

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  // The first runs have colours that were chosen, others some that differ.
  const colourOf = (run) => run < 10 ? colour("--run-" + run) : `hsl(${(run * 137.5) % 360} 60% 50%)`;

  const points = data.charts.flatMap((chart) => chart.series).flatMap((series) => series.points);
  let axis = points.some((point) => point[1] > 1) ? "epoch" : "step";
  let logarithmic = false;
  let smoothing = 0;

  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;

  const digits = (value) => String(Number(value.toPrecision(6)));

  // Exponential averages of the values before each point, without bias towards the first, as
  // TensorBoard's.
  function smoothed(points) {
    let sum = 0, weight = 0;
    return points.map((point) => {
      const [step, epoch, value] = point;
      if (value === null) return point;
      sum = smoothing * sum + (1 - smoothing) * value;
      weight = smoothing * weight + (1 - smoothing);
      return [step, epoch, sum / weight];
    });
  }

  function dataset(series, isLog) {
    const line = colourOf(series.run);
    const points = series.of === "step" && smoothing > 0 ? smoothed(series.points) : series.points;
    const shown = points.map(([step, epoch, value]) => ({
      x: axis === "epoch" ? epoch : step,
      y: value === null || (isLog && value <= 0) ? NaN : value,
      step, epoch,
    }));
    // A point without neighbours is no line.
    const radius = shown.map((point, i) => {
      const alone = (other) => !other || Number.isNaN(other.y);
      return shown.length < 25 || (alone(shown[i - 1]) && alone(shown[i + 1])) ? 2 : 0;
    });
    const isTest = series.of === "test";
    // A ring marks the best epoch.
    const isBest = (i) => i === series.best;
    return {
      label: series.of === "step" ? data.runs[series.run] : `${data.runs[series.run]} ${series.of}`,
      data: shown,
      borderColor: line,
      backgroundColor: line,
      borderWidth: series.of === "step" ? 1.25 : 1.75,
      borderDash: series.of === "train" ? [5, 3] : [],
      pointRadius: isTest ? 5 : radius.map((each, i) => (isBest(i) ? 5 : each)),
      pointBackgroundColor: shown.map((_, i) => (isBest(i) ? colour("--page") : line)),
      pointBorderWidth: shown.map((_, i) => (isBest(i) ? 2 : 1)),
      pointStyle: isTest ? "rectRot" : "circle",
      pointHitRadius: 6,
      hidden: hidden.has(series.run),
    };
  }

  function draw(chart) {
    const isLog = logarithmic && chart.log;
    const grid = { color: colour("--rule") };
    const ticks = { color: colour("--faint"), maxRotation: 0, autoSkipPadding: 12 };
    return new Chart(document.getElementById(chart.id), {
      type: "line",
      data: { datasets: chart.series.map((series) => dataset(series, isLog)) },
      options: {
        locale: "en",
        animation: false,
        maintainAspectRatio: false,
        normalized: true,
        interaction: { mode: "nearest", axis: "x", intersect: false },
        scales: {
          x: { type: "linear", grid, ticks, title: { display: true, text: axis, color: colour("--faint") } },
          y: {
            type: isLog ? "logarithmic" : "linear", grid, beginAtZero: chart.zero,
            ticks: chart.large ? { ...ticks, format: { notation: "compact", maximumFractionDigits: 1 } } : ticks,
          },
        },
        plugins: {
          legend: { display: false },
          tooltip: {
            callbacks: {
              title: (items) => items.length ? `epoch ${digits(items[0].raw.epoch)}, step ${items[0].raw.step}` : "",
              label: (item) => `${item.dataset.label}: ${digits(item.raw.y)}`,
            },
          },
        },
      },
    });
  }

  function drawAll() {
    for (const chart of charts) chart.destroy();
    for (const swatch of document.querySelectorAll(".swatch")) {
      swatch.style.background = colourOf(Number(swatch.dataset.run));
    }
    charts = data.charts.map(draw);
  }

  for (const input of document.querySelectorAll("input[name=axis]")) {
    input.checked = input.value === axis;
    input.addEventListener("change", () => { axis = input.value; drawAll(); });
  }
  const log = document.getElementById("log");
  if (log) {
    log.checked = false;
    log.addEventListener("change", () => { logarithmic = log.checked; drawAll(); });
  }
  const smooth = document.getElementById("smooth");
  if (smooth) {
    smooth.value = 0;
    smooth.addEventListener("input", () => { smoothing = Number(smooth.value); drawAll(); });
  }
  for (const input of document.querySelectorAll("input[data-shows]")) {
    input.checked = true;
    input.addEventListener("change", () => {
      const run = Number(input.dataset.shows);
      if (input.checked) hidden.delete(run); else hidden.add(run);
      drawAll();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", () => { root.classList.add("print"); drawAll(); });
  addEventListener("afterprint", () => { root.classList.remove("print"); drawAll(); });
  drawAll();
})();
