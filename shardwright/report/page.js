"use strict";
(() => {
  const STEP = 100;
  const make = (name, values = {}, ...content) => {
    const element = Object.assign(document.createElement(name), values);
    element.append(...content);
    return element;
  };
  const folded = (text) => text.normalize("NFKC").toLowerCase();
  const format = (number) =>
    Number.isInteger(number) || Math.abs(number) >= 1e5
      ? number.toLocaleString("en-US", { maximumFractionDigits: 0 })
      : String(Number(number.toPrecision(4)));
  const bytes = (number) => {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let unit = 0;
    for (; number >= 1000 && unit < 4; unit += 1) number /= 1000;
    return `${number.toFixed(unit ? 1 : 0)} ${units[unit]}`;
  };
  const bar = (share) => {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const rect = document.createElementNS(space, "rect");
    const drawn = { class: "bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" };
    for (const [name, value] of Object.entries(drawn)) svg.setAttribute(name, value);
    const filled = { class: "fill", height: 10, width: Math.min(Math.max(100 * share, 0), 100) };
    for (const [name, value] of Object.entries(filled)) rect.setAttribute(name, value);
    svg.append(rect);
    return svg;
  };
  const show = (kind, value) => {
    if (value === null) return "";
    if (kind === "name") return make("bdi", {}, String(value));
    if (typeof value !== "number") return String(value);
    if (kind === "share") return bar(value);
    return kind === "bytes" ? bytes(value) : format(value);
  };

  // A table: its rows are those of the page and, after them, those of its JSON.
  const enhance = (box) => {
    const kinds = [...box.querySelectorAll("thead th")].map((cell) => cell.className);
    const body = box.querySelector("tbody");
    const read = (cell) => ("value" in cell.dataset ? Number(cell.dataset.value) : cell.textContent);
    const rows = [...body.rows].map((row) => ({ row, values: [...row.cells].map(read) }));
    const data = box.querySelector("script");
    if (data) rows.push(...JSON.parse(data.textContent).map((values) => ({ row: null, values })));
    const drawn = (found) => {
      if (!found.row) {
        found.row = make("tr");
        found.values.forEach((value, place) => {
          const cell = make(place ? "td" : "th", { className: kinds[place] }, show(kinds[place], value));
          if (!place) cell.scope = "row";
          found.row.append(cell);
        });
      }
      return found.row;
    };
    const caption = box.querySelector("caption").textContent;
    const filter = make("input", { type: "search" });
    const status = make("span", { className: "status" });
    status.setAttribute("role", "status");
    const more = make("button", { type: "button", className: "more", textContent: "Show more" });
    more.setAttribute("aria-label", `Show more rows of ${caption}`);
    let limit = STEP;
    let order = rows;
    const draw = () => {
      const wanted = folded(filter.value.trim());
      const kept = wanted
        ? order.filter(({ values }) => values.some((value) => typeof value === "string" && folded(value).includes(wanted)))
        : order;
      body.replaceChildren(...kept.slice(0, limit).map(drawn));
      more.hidden = kept.length <= limit;
      status.textContent = kept.length === rows.length && more.hidden
        ? `${rows.length.toLocaleString("en-US")} rows`
        : `${Math.min(limit, kept.length).toLocaleString("en-US")} of ${kept.length.toLocaleString("en-US")} rows`;
    };
    const sortBy = (place, direction) => {
      const sign = direction === "ascending" ? 1 : -1;
      const compare = (left, right) => {
        const [a, b] = [left.values[place], right.values[place]];
        if (typeof a === "number" && typeof b === "number") return sign * (a - b);
        if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
        return sign * String(a).localeCompare(String(b), "en", { numeric: true });
      };
      order = [...rows].sort(compare);
      limit = STEP;
      draw();
    };
    box.querySelectorAll("thead th").forEach((head, place) => {
      const button = make("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const first = ["number", "bytes", "share"].includes(kinds[place]) ? "descending" : "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        const direction = head.getAttribute("aria-sort") === first ? other : first;
        box.querySelectorAll("th[aria-sort]").forEach((found) => found.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", direction);
        sortBy(place, direction);
      });
    });
    filter.addEventListener("input", () => { limit = STEP; draw(); });
    more.addEventListener("click", () => { limit += 5 * STEP; draw(); });
    filter.setAttribute("aria-label", `Filter ${caption}`);
    box.prepend(make("div", { className: "tools" }, make("label", {}, "Filter ", filter), status));
    box.append(more);
    box.querySelector(".more-note")?.remove();
    draw();
  };
  document.querySelectorAll("[data-tools]").forEach(enhance);

  // Pictures: shown by split, class and id.
  document.querySelectorAll(".pictures").forEach((box) => {
    const [tools, select, text, check, status] = [
      ".tools", ".by-split", ".by-text", ".drawn", ".status",
    ].map((name) => box.querySelector(name));
    const figures = [...box.querySelectorAll("figure")].map((figure) => {
      const { id = "", label = "", split = "" } = figure.querySelector("button")?.dataset ?? {};
      return { figure, split, text: folded(`${label}\n${id}`) };
    });
    const draw = () => {
      const wanted = folded(text.value.trim());
      let number = 0;
      for (const found of figures) {
        const kept = (!select.value || found.split === select.value) && found.text.includes(wanted);
        found.figure.hidden = !kept;
        number += kept;
        for (let part = kept && wanted && found.figure.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
      }
      for (const group of box.querySelectorAll(".group")) group.hidden = !group.querySelector("figure:not([hidden])");
      for (const part of box.querySelectorAll("[data-split]:not(button)")) part.hidden = !part.querySelector("figure:not([hidden])");
      status.textContent = `${number.toLocaleString("en-US")} pictures`;
    };
    tools.hidden = false;
    select.addEventListener("change", draw);
    text.addEventListener("input", draw);
    check?.addEventListener("change", () => document.body.classList.toggle("plain", !check.checked));
    draw();
  });

  // A picture that the page shows twice is in it once.
  document.querySelectorAll("[data-of]").forEach((button) => {
    const frame = document.getElementById(button.dataset.of)?.querySelector(".frame");
    if (frame) button.querySelector(".frame").replaceWith(frame.cloneNode(true));
  });

  // Zoom: a dialog, which holds the focus and gives it back.
  const dialog = document.querySelector("dialog");
  const visible = () => [...document.querySelectorAll("main .zoom")].filter((one) => one.offsetParent !== null);
  let current = null;
  const open = (button) => {
    current = button;
    const { id, label, split, facts } = button.dataset;
    const told = dialog.querySelector(".told");
    told.replaceChildren(...[label, id, split, facts].filter(Boolean).flatMap((part, place) => [place ? " \u00b7 " : "", make("bdi", {}, part)]));
    const frame = button.querySelector(".frame").cloneNode(true);
    const [width, height] = ["width", "height"].map((side) => Number(frame.firstChild.getAttribute(side)) || 1);
    const scale = Math.min((0.84 * innerWidth) / width, (0.68 * innerHeight) / height, 640 / Math.max(width, height));
    frame.style.width = `${Math.round(width * scale)}px`;
    dialog.querySelector(".large").replaceChildren(frame);
    if (!dialog.open) dialog.showModal();
  };
  const move = (step) => {
    const all = visible();
    const place = all.indexOf(current) + step;
    if (all.length) open(all[(place + all.length) % all.length]);
  };
  document.querySelectorAll("main .zoom").forEach((button) => button.addEventListener("click", () => open(button)));
  dialog.querySelector(".previous").addEventListener("click", () => move(-1));
  dialog.querySelector(".next").addEventListener("click", () => move(1));
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => current?.focus());
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") move(-1);
    if (event.key === "ArrowRight") move(1);
  });
})();
