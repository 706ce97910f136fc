// Keys for people who review all day. Every one of them does what a link or a form field on the page does, too.
(() => {
  "use strict";

  const typing = (target) => target.closest("textarea, select, input:not([type=radio])") !== null;
  const links = [...document.querySelectorAll("[data-queue] a.rule")];
  const form = document.querySelector("form[data-decide]");
  const help = document.getElementById("help");

  const move = (by) => {
    const at = links.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by));
    links[next].focus();
    links[next].closest("li").scrollIntoView({ block: "nearest" });
  };

  const follow = (selector) => {
    const link = document.querySelector(selector);
    if (link) link.click();
    return link !== null;
  };

  const names = {};
  const button = form && form.querySelector("[data-confirm]");
  const hint = form && form.querySelector("[data-confirm-hint]");
  const reason = form && form.querySelector("textarea");
  const radios = form ? [...form.querySelectorAll("input[type=radio]")] : [];
  for (const radio of radios) names[radio.dataset.key] = radio;

  // The button says what it will do.
  const showChoice = () => {
    const chosen = radios.find((radio) => radio.checked);
    button.textContent = chosen ? chosen.closest("label").querySelector(".name").textContent : "Decide";
    button.dataset.choice = chosen ? chosen.value : "";
    if (!chosen) hint.textContent = "";
  };

  const choose = (radio) => {
    radio.checked = true;
    showChoice();
    const token = form.querySelector("#token");
    const category = radio.value === "promote" ? form.querySelector("#category") : null;
    const first = !reason.value.trim() ? reason : token && !token.value ? token : category && !category.value ? category : button;
    first.focus();
    const does = button.textContent.toLowerCase();
    const how = first === button ? `Enter to ${does}` : `${first.dataset.first}, then Ctrl Enter to ${does}`;
    hint.textContent = `${how}, Esc to take it back`;
  };

  const takeBack = () => {
    for (const radio of radios) radio.checked = false;
    showChoice();
    document.getElementById("main").focus();
  };

  if (form) {
    reason.required = true;
    form.addEventListener("change", showChoice);
    // A slow answer must not be asked for twice.
    form.addEventListener("submit", () => { button.disabled = true; });
    window.addEventListener("pageshow", () => { button.disabled = false; });
    showChoice();
  }

  const said = document.querySelector("[role=alert]#saying");
  if (said) said.focus();

  document.addEventListener("keydown", (event) => {
    if (help && help.open) return;
    if (form && event.key === "Escape" && radios.some((radio) => radio.checked)) return takeBack();
    if (form && event.key === "Enter" && (event.ctrlKey || event.metaKey) && form.contains(event.target)) {
      return form.requestSubmit(button);
    }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    let done = true;
    if (event.key === "?") help ? help.showModal() : (done = false);
    else if (links.length && (event.key === "j" || event.key === "ArrowDown")) move(1);
    else if (links.length && (event.key === "k" || event.key === "ArrowUp")) move(-1);
    else if (names[event.key]) choose(names[event.key]);
    else if (event.key === "u") done = follow("[data-up]");
    else if (event.key === "n") done = follow("[data-next]");
    else done = false;
    if (done) event.preventDefault();
  });

  for (const link of document.querySelectorAll("[data-help]")) {
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      help.showModal();
    });
  }
})();
