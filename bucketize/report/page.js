"use strict";
(() => {
  const { charts, frames } = JSON.parse(document.getElementById("data").textContent);

  // A frame as rows, which Vega wants.
  const rows = (frame) => {
    const names = Object.keys(frame);
    const count = names.length ? frame[names[0]].length : 0;
    return Array.from({ length: count }, (_, i) => Object.fromEntries(names.map((n) => [n, frame[n][i]])));
  };
  const datasets = Object.fromEntries(Object.entries(frames).map(([name, frame]) => [name, rows(frame)]));

  const draw = async (place) => {
    const chart = charts[Number(place.dataset.chart)];
    const legend = { ...chart.config.legend, columns: place.clientWidth < 500 ? 2 : 5 };
    const specification = { ...chart, config: { ...chart.config, legend }, datasets };
    const options = { actions: false, renderer: "svg", tooltip: { disableDefaultStyle: true } };
    const drawn = await vegaEmbed(place, specification, options);
    // a kernel of the graph leads to its entry in the list
    drawn.view.addEventListener("click", (_, item) => {
      if (item?.datum?.anchor) location.hash = item.datum.anchor;
    });
    // the place says in words what is seen
    for (const svg of place.querySelectorAll("svg")) svg.setAttribute("aria-hidden", "true");
    return drawn;
  };
  const places = [...document.querySelectorAll(".chart")];
  Promise.all(places.map(draw)).then(
    () => document.documentElement.setAttribute("data-drawn", String(places.length)),
    (error) => console.error(error),
  );

  // What a link means is opened, with all that it lies in.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let place = target; place; place = place.parentElement) {
      if (place.tagName === "DETAILS") place.open = true;
    }
    if (target && target.tagName === "DETAILS") target.querySelector("summary").focus();
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
