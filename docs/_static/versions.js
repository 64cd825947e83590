// A choice of the documentation's version, where the site has several: versions.json lies beside the
// versions' folders, as tools/docs_site.py writes it. Opened from disk there is none.
(async () => {
  const root = new URL("../../", document.currentScript.src);
  const answer = await fetch(new URL("versions.json", root)).catch(() => null);
  if (!answer?.ok) return;
  const versions = await answer.json();
  const here = location.href.slice(root.href.length);
  const [current] = here.split("/");
  const page = here.slice(current.length + 1).replace(/[?#].*$/, "");
  const choice = document.createElement("select");
  choice.id = "versions";
  choice.setAttribute("aria-label", "Version of this documentation");
  choice.append(...versions.map(({ name, folder }) => new Option(name, folder, false, folder === current)));
  // The same page of that version, if it has it.
  choice.addEventListener("change", async () => {
    const there = new URL(`${choice.value}/`, root);
    const same = new URL(page, there);
    const found = await fetch(same, { method: "HEAD" }).catch(() => null);
    location.href = found?.ok ? same : there;
  });
  document.querySelector(".sidebar-search-container")?.before(choice);
})();
