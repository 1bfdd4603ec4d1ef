// Light, dark, or as the system has it: the choice is kept and applied before anything is painted.
(() => {
  const choices = ["auto", "light", "dark"];
  const kept = () => {
    const choice = localStorage.getItem("pricemesh-theme");
    return choices.includes(choice) ? choice : "auto";
  };
  const apply = (choice) => {
    document.documentElement.dataset.theme = choice;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${choice}`;
  };
  apply(kept());
  addEventListener("DOMContentLoaded", () => {
    apply(kept());
    document.getElementById("theme").addEventListener("click", () => {
      const next = choices[(choices.indexOf(kept()) + 1) % choices.length];
      localStorage.setItem("pricemesh-theme", next);
      apply(next);
    });
  });
})();
