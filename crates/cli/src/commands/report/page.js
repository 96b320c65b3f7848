"use strict";
for (const button of document.querySelectorAll("button[data-zoom]")) {
  button.addEventListener("click", () => {
    const wide = document.getElementById("wide");
    const scroll = wide.parentElement;
    const middle = (scroll.scrollLeft + scroll.clientWidth / 2) / wide.clientWidth;
    wide.style.width = Number(button.dataset.zoom) * 100 + "%";
    scroll.scrollLeft = middle * wide.clientWidth - scroll.clientWidth / 2;
    for (const other of document.querySelectorAll("button[data-zoom]")) {
      other.setAttribute("aria-pressed", String(other === button));
    }
  });
}
