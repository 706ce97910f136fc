"""A headless Chromium of this machine, what a page in it did besides showing itself, and what a page must satisfy."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
DESK, PHONE = (1280, 860), (390, 844)
LOOKS = [(scheme, name, size) for scheme in ("light", "dark") for name, size in (("desk", DESK), ("phone", PHONE))]


def chromium() -> str:
    """The browser's path; skips the test where there is none."""
    found = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return found


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    path = chromium()
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        await browser.close()


@dataclass
class Visit:
    """One person's window, and whatever went on in it that a page of ours never does."""

    page: Page
    base: str
    incidents: list[str] = field(default_factory=list)

    async def sign_in(self, token: str, target: str = "/queue") -> None:
        await self.page.goto(self.base + target)
        await self.page.get_by_label("Token").fill(token)
        await self.page.keyboard.press("Enter")
        await self.page.wait_for_url(self.base + target)

    async def shot(self, name: str) -> None:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    async def check(self) -> None:
        """The page can be read, reached and understood; nothing of it is cut off; it did nothing behind its back."""
        assert await self.page.evaluate(_FINDINGS) == []
        assert self.incidents == []


@asynccontextmanager
async def visiting(
    browser: Browser, base: str, *, scheme: str = "light", size: tuple[int, int] = DESK, script: bool = True
) -> AsyncIterator[Visit]:
    context: BrowserContext = await browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": size[0], "height": size[1]},
        java_script_enabled=script,
        reduced_motion="reduce",
    )
    context.set_default_timeout(10_000)
    visit = Visit(await context.new_page(), base)
    _watch(visit)
    yield visit
    await context.close()


def _watch(visit: Visit) -> None:
    page, note = visit.page, visit.incidents.append

    async def dialog(opened: Any) -> None:
        note(f"dialog: {opened.message}")
        await opened.dismiss()

    page.on("dialog", dialog)
    page.on("pageerror", lambda error: note(f"script error: {error}"))
    # Refused decisions are answered with an error status, which Chromium tells the console too.
    page.on(
        "console",
        lambda said: (
            note(f"console: {said.text}")
            if said.type == "error" and "Failed to load resource" not in said.text
            else None
        ),
    )
    page.on("request", lambda asked: None if asked.url.startswith(visit.base) else note(f"request: {asked.url}"))
    page.on("popup", lambda opened: note(f"popup: {opened.url}"))
    page.on("download", lambda opened: note(f"download: {opened.url}"))


_FINDINGS = """() => {
  const found = [];
  const shown = (e) => e.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  const named = (e) => (e.getAttribute("aria-label") || e.innerText || "").trim() !== "";
  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);

  if (!document.documentElement.lang) found.push("no language");
  if (!document.title.trim()) found.push("no title");
  if (all("main").length !== 1) found.push("not one main landmark");
  if (all("h1").length !== 1) found.push(`${all("h1").length} first headings`);
  let level = 0;
  for (const heading of all("h1, h2, h3, h4")) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) found.push(`heading skips a level: ${heading.innerText}`);
    level = own;
  }
  for (const nav of all("nav")) if (!nav.getAttribute("aria-label")) found.push("a nav without a name");
  for (const control of all("input:not([type=hidden]), select, textarea")) {
    if (!control.labels.length && !control.getAttribute("aria-label")) found.push(`no label: ${control.name}`);
  }
  for (const active of all("a[href], button, summary")) if (!named(active)) found.push(`no name: ${active.outerHTML}`);
  for (const group of all("fieldset")) if (!group.querySelector("legend")) found.push("a fieldset without a legend");
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push(`id twice: ${id}`);
  for (const attribute of ["aria-describedby", "aria-labelledby", "for"]) {
    for (const e of document.querySelectorAll(`[${attribute}]`)) {
      for (const id of e.getAttribute(attribute).split(" ")) {
        if (!document.getElementById(id)) found.push(`${attribute} names nothing: ${id}`);
      }
    }
  }
  if (document.documentElement.scrollWidth > window.innerWidth) found.push("the page scrolls sideways");
  for (const e of all("body *")) {
    const box = e.getBoundingClientRect();
    if (box.width > 1 && box.right > window.innerWidth + 1) found.push(`cut off: ${e.outerHTML.slice(0, 80)}`);
  }

  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((v) => linear(v / 255));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3] === 255) return colour;
    }
    return [255, 255, 255, 255];
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const told = new Set();
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !shown(e) || e.closest(".sr, .skip, option")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [light(rgba(style.color)), light(behind(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const said = `contrast ${ratio.toFixed(2)}: ${e.tagName}.${e.className}`;
    if (ratio < (large ? 3 : 4.5) && !told.has(said)) told.add(said), found.push(said);
  }
  return found;
}"""
