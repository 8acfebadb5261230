"use strict";
// Draws the charts of the page with plotly. page.js calls drawCharts() once.

// Plotly reads some HTML, entities and %{...} in every text. Here all of them are only text.
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "%": "&#37;" };
const escaped = (key, value) => typeof value === "string" ? value.replace(/[&<>%]/g, (c) => ENTITIES[c]) : value;

function themed(layout) {
  const style = getComputedStyle(document.documentElement);
  const [ink, soft, grid, paper] = ["--ink", "--soft", "--grid", "--paper"].map((name) => style.getPropertyValue(name).trim());
  const found = {
    "font.color": ink, "font.family": "system-ui, sans-serif", paper_bgcolor: paper, plot_bgcolor: paper,
    "hoverlabel.bgcolor": paper, "hoverlabel.bordercolor": soft, "hoverlabel.font.color": ink,
    "legend.bgcolor": "rgba(0,0,0,0)",
  };
  for (const axis of Object.keys(layout).filter((name) => /^[xy]axis\d*$/.test(name))) {
    Object.assign(found, { [`${axis}.gridcolor`]: grid, [`${axis}.linecolor`]: soft, [`${axis}.zerolinecolor`]: soft });
  }
  return found;
}

// Below a narrow chart there is room for names, beside it there is none. Long titles break there, and of two panels the
// second stands below the first.
function placed(layout, width, names, height) {
  const narrow = width < 640, stacked = narrow && layout.xaxis2;
  const broken = (text) => narrow ? text.replace(/ (\([^(]*\))$/, "<br>$1").replace("; ", ";<br>") : text;
  const found = narrow
    ? { "legend.orientation": "h", "legend.x": 0, "legend.yref": "container", "legend.y": 0, "legend.yanchor": "bottom",
        height: height * (stacked ? 1.8 : 1) + 21 * names }
    : { "legend.orientation": "v", "legend.x": 1.02, "legend.yref": "paper", "legend.y": 1, "legend.yanchor": "top",
        height: Math.max(height, 110 + 30 * names) };
  if (layout.xaxis2) {
    for (const [axis, above] of [["", [0.58, 1]], ["2", [0, 0.42]]]) {
      found[`xaxis${axis}.domain`] = stacked ? [0, 1] : layout[`xaxis${axis}`].domain;
      found[`yaxis${axis}.domain`] = stacked ? above : [0, 1];
    }
  }
  for (const [axis, { title }] of Object.entries(layout).filter(([name]) => /^[xy]axis\d*$/.test(name))) {
    if (title) Object.assign(found, { [`${axis}.title.text`]: broken(title.text), [`${axis}.title.font.size`]: narrow ? 11 : 14 });
  }
  return found;
}

// The exponential moving average, whose weights add up to 1 from the first value on, as chart.smoothed of Python.
// An infinite value, which JSON has as null, ends it: an average without it would look as if nothing had happened.
function smoothed(values, kept) {
  let total = 0, weight = 0, ended = false;
  return values.map((value) => {
    ended ||= value === null;
    total = total * kept + value;
    weight = weight * kept + 1;
    return ended ? null : total / weight;
  });
}

// Each line's average. Lines behind a mean stay as they are.
function averaged(traces, kept) {
  return traces.map((trace) => trace.hoverinfo === "skip" ? trace : { ...trace, y: smoothed(trace.y, kept) });
}

function labelled(text, control, before = true) {
  const label = document.createElement("label");
  label.append(...(before ? [`${text} `, control] : [control, ` ${text}`]));
  return label;
}

// The slider of the average, and the switch between tokens and time. `moved` is called when the axis counts another.
function addTools(plot, traces, kept, moved) {
  const tools = document.createElement("div");
  tools.className = "tools";
  const slider = document.createElement("input");
  Object.assign(slider, { type: "range", min: 0, max: 0.99, step: 0.01, value: kept });
  const value = document.createElement("output");
  value.textContent = kept.toFixed(2);
  slider.addEventListener("input", () => {
    value.textContent = Number(slider.value).toFixed(2);
    Plotly.restyle(plot, { y: averaged(traces, Number(slider.value)).map((trace) => trace.y) });
  });
  const label = labelled("moving average keeps", slider);
  label.append(" ", value);
  tools.append(label);
  const seconds = (trace) => (trace.meta && trace.meta.seconds) || trace.x.map(() => null);
  if (traces.some((trace) => trace.meta)) {
    const name = `against-${Math.random().toString(36).slice(2)}`;
    for (const [text, x] of [["by tokens", (trace) => trace.x], ["by time", seconds]]) {
      const button = document.createElement("input");
      Object.assign(button, { type: "radio", name, checked: text === "by tokens" });
      button.addEventListener("change", () => {
        Plotly.restyle(plot, { x: traces.map(x) }).then(() => moved(text === "by time"));
      });
      tools.append(labelled(text, button, false));
    }
  }
  plot.after(tools);
}

// Whether there is room for names at the ends of lines, and the scale is still the one that they were placed for.
function namesAtEnds(plot, layout) {
  const shown = plot.layout.yaxis.range;
  return plot.clientWidth >= 480 && shown && layout.yaxis.range.every((end, at) => Math.abs(end - shown[at]) < 1e-6);
}

function drawChart(figure) {
  const plot = figure.querySelector(".plot");
  const { traces, layout, kept } = JSON.parse(figure.querySelector("script").textContent, escaped);
  const axes = Object.fromEntries(Object.entries(layout).filter(([name]) => /^[xy]axis\d*$/.test(name))
    .map(([name, axis]) => [name, { automargin: true, ...structuredClone(axis) }])); // plotly writes into them
  const whole = { margin: { l: 60, r: 20, t: 30, b: 50 }, autosize: true, ...layout, ...axes };
  // Entities in texts that plotly puts into a hover box are read there too.
  const room = (trace) => (plot.clientWidth - 100) / trace.z[0].length > 30; // for a number in a cell
  const named = (trace) => trace.type === "heatmap"
    ? { texttemplate: room(trace) ? "%{text}" : "", hoverinfo: "text", ...trace }
    : { hovertemplate: "%{fullData.name}<br>%{x}: %{y}%{text}<extra></extra>", text: "", ...trace };
  const drawn = (kept ? averaged(traces, kept) : traces).map(named);
  // Named one by one: plotly's own choice has a button that sends the data to a host.
  const options = { displaylogo: false, displayModeBar: plot.clientWidth < 640 ? false : "hover", modeBarButtons: [["toImage", "zoom2d", "pan2d", "autoScale2d", "resetScale2d"]] };
  const ends = layout.showlegend === false; // names stand at the ends of lines
  const names = traces.filter((trace) => trace.name && trace.showlegend !== false && trace.type !== "heatmap").length;
  const height = layout.height || Math.max(plot.clientHeight, 360);
  plot.style.minHeight = "0"; // which kept its place until now
  const counted = whole.xaxis.title && whole.xaxis.title.text;
  Plotly.newPlot(plot, drawn, whole, options).then(() => {
    const look = () => {
      const found = { ...themed(whole) };
      const beside = ends && namesAtEnds(plot, layout);
      if (ends) Object.assign(found, beside ? { showlegend: false, annotations: layout.annotations, "margin.r": layout.margin.r }
        : { showlegend: true, annotations: [], "margin.r": 20 });
      return Plotly.relayout(plot, { ...found, ...placed(whole, plot.clientWidth, beside ? 0 : names, height) });
    };
    look();
    document.addEventListener("themechange", look);
    let width = plot.clientWidth;
    new ResizeObserver(() => {
      if (plot.clientWidth === 0 || plot.clientWidth === width) return; // hidden, or as it was
      width = plot.clientWidth;
      look().then(() => Plotly.Plots.resize(plot));
    }).observe(plot);
    if (kept) {
      addTools(plot, traces, kept, (byTime) => {
        whole.xaxis.title = { text: byTime ? "training time (seconds)" : counted };
        Plotly.relayout(plot, { "xaxis.autorange": true }).then(look);
      });
    }
    if (ends) {
      plot.on("plotly_relayout", (change) => {
        if (Object.keys(change).some((name) => /^yaxis\.(range|autorange)/.test(name))) look();
      });
    }
    plot.dataset.drawn = "yes";
  });
}

// Each chart is drawn when it is first seen: a page can have many, and some in views that nobody opens.
function drawCharts() {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      seen.unobserve(entry.target);
      drawChart(entry.target);
    }
  }, { rootMargin: "300px" });
  for (const figure of document.querySelectorAll("figure.chart")) seen.observe(figure);
}
