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

  // Selected records, by id. One with characters that are shown as escapes is stated as JSON, too.
  const exact = ({ id, json }) => (json ? JSON.parse(json) : id);
  const chosen = new Set();
  const checks = new Map();
  const listed = make("textarea", { readOnly: true, rows: 4 });
  const count = make("span", { className: "status" });
  const use = make("p", { className: "note" });
  const copy = make("button", { type: "button", textContent: "Copy ids" });
  const clear = make("button", { type: "button", textContent: "Clear" });
  const selection = make("section", { className: "selection", hidden: true }, make("div", { className: "buttons" }, count, copy, clear), listed, use);
  selection.setAttribute("aria-label", "Selected pictures");
  listed.setAttribute("aria-label", "Ids of the selected pictures");
  count.setAttribute("role", "status");
  document.body.append(selection);
  const choose = (ids, on) => {
    for (const id of ids) {
      chosen[on ? "add" : "delete"](id);
      for (const check of checks.get(id) ?? []) check.checked = on;
    }
    const all = [...chosen];
    const asJson = all.some((id) => /[\r\n\ufeff]/.test(id));
    const file = asJson ? "ids.json" : "ids.txt";
    selection.hidden = !all.length;
    listed.value = asJson ? JSON.stringify(all) : all.join("\n");
    count.textContent = `${all.length.toLocaleString("en-US")} selected`;
    use.textContent = `Save them as ${file} for shardwright erase DATASET --ids ${file}, or build --split-ids SPLIT=${file}.`;
  };
  document.querySelectorAll("main .zoom[data-split]").forEach((button) => {
    const id = exact(button.dataset);
    const check = make("input", { type: "checkbox", className: "choose" });
    check.setAttribute("aria-label", `Select ${button.dataset.id}`);
    check.addEventListener("change", () => choose([id], check.checked));
    button.after(check);
    checks.set(id, [...(checks.get(id) ?? []), check]);
  });
  clear.addEventListener("click", () => choose([...chosen], false));
  copy.addEventListener("click", async () => {
    listed.select();
    try {
      await navigator.clipboard.writeText(listed.value);
      count.textContent = "copied";
    } catch {
      count.textContent = document.execCommand("copy") ? "copied" : "press Ctrl+C to copy";
    }
  });

  // Pictures: those of a split, a class and an id.
  document.querySelectorAll(".pictures").forEach((box) => {
    const [tools, split, label, text, check, every, status] = [
      ".tools", ".by-split", ".by-label", ".by-text", ".drawn", ".by-all", ".status",
    ].map((name) => box.querySelector(name));
    const figures = [...box.querySelectorAll("figure")].map((figure) => {
      const data = figure.querySelector("button").dataset;
      return { figure, data, text: folded(`${data.label ?? ""}\n${data.id}`) };
    });
    const labels = new Set(figures.map(({ data }) => data.label).filter(Boolean));
    label.append(...[...labels].map((name) => make("option", { value: name, textContent: name })));
    label.parentElement.hidden = labels.size < 2;
    let kept = figures;
    const draw = () => {
      const wanted = folded(text.value.trim());
      const fits = ({ data, text: told }) =>
        (!split.value || data.split === split.value) && (!label.value || data.label === label.value) && told.includes(wanted);
      for (const found of figures) found.figure.hidden = !fits(found);
      kept = figures.filter(({ figure }) => !figure.hidden);
      if (wanted || label.value) {
        for (const { figure } of kept) for (let part = figure.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
      }
      for (const group of box.querySelectorAll(".group, [data-split]:not(button)")) group.hidden = !group.querySelector("figure:not([hidden])");
      status.textContent = `${kept.length.toLocaleString("en-US")} pictures`;
    };
    tools.hidden = false;
    for (const part of [split, label, text]) part.addEventListener("input", draw);
    check?.addEventListener("change", () => document.body.classList.toggle("plain", !check.checked));
    every.addEventListener("click", () => choose(kept.map(({ data }) => exact(data)), true));
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
  const pick = dialog.querySelector(".pick");
  let current = null;
  const open = (button) => {
    current = button;
    const { id, label, split, facts } = button.dataset;
    const told = dialog.querySelector(".told");
    pick.hidden = !split;
    pick.setAttribute("aria-pressed", chosen.has(exact(button.dataset)));
    const frame = button.querySelector(".frame").cloneNode(true);
    const [width, height] = ["width", "height"].map((side) => Number(frame.firstChild.getAttribute(side)) || 1);
    told.replaceChildren(...[label, id, split, facts, `shown from ${width} x ${height}`].filter(Boolean).flatMap((part, place) => [place ? " \u00b7 " : "", make("bdi", {}, part)]));
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
  pick.addEventListener("click", () => {
    const id = exact(current.dataset);
    choose([id], !chosen.has(id));
    pick.setAttribute("aria-pressed", chosen.has(id));
  });
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => current?.focus());
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") move(-1);
    if (event.key === "ArrowRight") move(1);
  });
})();
