"use strict";
// Colors are the page's own, so that charts follow light and dark; before it prints, a browser has not chosen paper yet.
const PAPER = { "--text": "#000", "--dim": "#444", "--line": "#bbb" };
function theme(isPaper) {
  const style = getComputedStyle(document.documentElement);
  const color = (name) => isPaper ? PAPER[name] : style.getPropertyValue(name).trim();
  const axis = { gridcolor: color("--line"), zerolinecolor: color("--line"), linecolor: color("--line"), automargin: true,
                 exponentformat: "power" };
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: color("--text"), size: 13 },
           margin: { l: 60, r: 20, t: 36, b: 50 },
           modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--dim"), activecolor: color("--text") }, xaxis: axis, yaxis: axis };
}

function merged(below, above) {
  const result = { ...below };
  for (const [name, value] of Object.entries(above)) {
    const both = value && typeof value === "object" && !Array.isArray(value) && result[name];
    result[name] = both ? merged(result[name], value) : value;
  }
  return result;
}

// Numbers of a private registry stay on this machine: no button of a chart sends them to Plotly's servers.
const OPTIONS = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
                  modeBarButtonsToRemove: ["select2d", "lasso2d", "sendChartToCloud"] };

// On paper a chart is as wide as a page of A4 between its margins; on a screen it has the width of its place.
const PAPER_WIDTH = 680;
function draw(place, width) {
  const chart = JSON.parse(place.dataset.chart);
  const size = { height: chart.height, ...(width ? { width } : { autosize: true }) };
  Plotly.react(place, chart.traces, merged(theme(Boolean(width)), { ...chart.layout, ...size }), OPTIONS);
}

function showCharts() {
  const places = document.querySelectorAll(".chart:not([data-chart])");
  if (places.length && !window.Plotly) {  // of the board: a page without a chart does without its 4 MB
    if (!document.querySelector("script[src]"))
      document.head.append(Object.assign(document.createElement("script"), { src: "/plotly.js", onload: showCharts }));
    return;
  }
  for (const place of places) {
    place.dataset.chart = place.querySelector("script").textContent;
    place.textContent = "";
    draw(place);
  }
}
const redraw = (width) => document.querySelectorAll(".chart").forEach((place) => draw(place, width));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw());
addEventListener("beforeprint", () => redraw(PAPER_WIDTH));
addEventListener("afterprint", () => redraw());

// A table shows its first rows, and more as its reader comes near their end: laying out a thousand takes a fifth of
// a second.
const STEP = 100;
const numShown = (body) => [...body.rows].filter((row) => !row.hidden).length;
const showRows = (body, number) => [...body.rows].forEach((row, place) => { row.hidden = place >= number; });
addEventListener("scroll", ({ target: { scrollTop, clientHeight, scrollHeight, firstElementChild: table } }) => {
  const body = table?.tBodies?.[0];
  if (body && scrollTop + 2 * clientHeight >= scrollHeight) showRows(body, numShown(body) + STEP);
}, true);

const words = new Intl.Collator(undefined, { numeric: true });
function sortBy(heading) {
  const row = heading.parentElement, body = row.closest("table").tBodies[0], column = heading.cellIndex;
  const descends = heading.getAttribute("aria-sort") === "ascending";
  for (const other of row.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descends ? "descending" : "ascending");
  const isNumber = heading.classList.contains("number");
  const keyed = [...body.rows].map((line) => {
    const cell = line.cells[column], key = cell.dataset.sort ?? cell.textContent;
    return { line, isLast: key === "–" || (isNumber && Number.isNaN(Number(key))), key: isNumber ? Number(key) : key };
  });
  const order = isNumber ? (a, b) => a.key - b.key : (a, b) => words.compare(a.key, b.key);
  keyed.sort((a, b) => a.isLast - b.isLast || (a.isLast ? 0 : descends ? order(b, a) : order(a, b)));
  const number = numShown(body);
  body.append(...keyed.map(({ line }) => line));
  showRows(body, number);
}
async function copy(button) {
  const text = button.nextElementSibling;
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {  // a page from a file may be refused the clipboard: the text is marked instead
    getSelection().selectAllChildren(text);
    button.textContent = "Marked";
  }
}

document.addEventListener("click", (event) => {
  if (event.target.closest("th button")) sortBy(event.target.closest("th"));
  if (event.target.matches(".copy")) copy(event.target);
});

// Parts that a reader may have opened, sorted, scrolled or be at, each by what a newer page has as well: its heading, its
// figure, its kind and its name, and a number where these are those of several.
function placesOfReader() {
  const places = new Map();
  for (const part of document.querySelectorAll("nav a, header p a, main, main :is(details, summary, th, button, input, a[href], pre, .wide)")) {
    const [section, figure] = [["section", "h2"], ["figure", "figcaption"]]
      .map(([around, title]) => part.closest(around)?.querySelector(title).textContent);
    const name = part.matches("nav a, th, th button") ? part.textContent : part.value || (part.getAttribute("aria-label") ?? part.getAttribute("href"));
    const place = JSON.stringify([section, figure, part.tagName, name]);
    let number = 1;
    while (places.has(place + number)) number += 1;
    places.set(place + number, part);
  }
  return places;
}

// Replace parts of the page; what its reader did to it stays.
function replaceForReader(replace) {
  const before = [...placesOfReader()].map(([place, part]) => [place, {
    isOpen: part.open, isChosen: part.checked, order: part.getAttribute("aria-sort"), left: part.scrollLeft, top: part.scrollTop,
    number: part.matches(".wide") ? numShown(part.querySelector("tbody")) : 0,
    isFocused: part === document.activeElement,
  }]);
  replace();
  const now = placesOfReader();
  let focused = null;
  for (const [place, { isOpen, isChosen, order, left, top, number, isFocused }] of before) {
    const part = now.get(place);
    if (!part) continue;
    if (isOpen) part.open = true;
    if (isChosen) part.checked = true;
    if (order) sortBy(part);
    if (order === "descending") sortBy(part);
    if (number) showRows(part.querySelector("tbody"), Math.max(number, STEP));
    if (left) part.scrollLeft = left;
    if (top) part.scrollTop = top;
    if (isFocused) focused = part;
  }
  focused?.focus({ preventScroll: true });
}

// What is at work is looked at again every five seconds; what has not changed stays as it is.
let shown = document.querySelector("main").innerHTML;
async function refresh() {
  const response = await fetch(location.href).catch(() => null);
  document.getElementById("gone").textContent =
    response === null ? "The board does not answer; is `orchestrator board` still running?" : "";
  if (response === null || !response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const [header, main] = ["header", "main"].map((name) => page.querySelector(name));
  if (shown !== main.innerHTML) {
    shown = main.innerHTML;
    replaceForReader(() => {
      document.querySelector("header").replaceWith(document.adoptNode(header));
      document.querySelector("main").replaceWith(document.adoptNode(main));
      showCharts();
    });
  }
  if (!("live" in page.body.dataset)) clearInterval(refreshing);
}
const refreshing = "live" in document.body.dataset ? setInterval(() => document.hidden || refresh(), 5000) : 0;

showCharts();
