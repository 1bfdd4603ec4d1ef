// The theme: light, dark or the system's. The choice is stored, and applied before the first paint.
(() => {
  const choices = ["auto", "light", "dark"];
  const storedChoice = () => {
    const choice = localStorage.getItem("pricemesh-theme");
    return choices.includes(choice) ? choice : "auto";
  };
  const apply = (choice) => {
    document.documentElement.dataset.theme = choice;
    const button = document.getElementById("theme");
    if (button) button.textContent = `Theme: ${choice}`;
  };
  apply(storedChoice());
  addEventListener("DOMContentLoaded", () => {
    apply(storedChoice());
    document.getElementById("theme").addEventListener("click", () => {
      const next = choices[(choices.indexOf(storedChoice()) + 1) % choices.length];
      localStorage.setItem("pricemesh-theme", next);
      apply(next);
    });
  });
})();
