"""What does the page of a run look like? Its HTML and CSS, with places for what the run says."""

from string import Template

# The policy makes the promise that the page asks nothing of any network binding on the browser.
PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<title>$title</title>
<style>$style</style>
<script>$plotly</script>
</head>
<body>
<main>
<h1>$title</h1>
<p class="summary">$summary</p>
<noscript><p class="note">The pictures need JavaScript; the texts do not.</p></noscript>
<section class="pictures" aria-label="Pictures">
$pictures
</section>
$sections
<section aria-labelledby="ends">
<h2 id="ends">Where the chains began and ended</h2>
$shown
$ends
</section>
<section aria-labelledby="texts">
<h2 id="texts">The texts over time</h2>
<p class="note"><mark>Marked</mark> tokens differ from the row above; \
<span class="frozen">grey</span> ones are never redrawn.</p>
$timelines
</section>
</main>
<footer>
<h2>How it was made</h2>
<p class="signature"><code>$signature</code></p>
</footer>
</body>
</html>
""")

STYLE = """
:root { --ink: #1f2328; --quiet: #5f6672; --faint: #e5e7eb; --changed: #ffe08a; }
* { box-sizing: border-box; }
body { margin: 0; background: #fff; color: var(--ink); overflow-wrap: anywhere;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial,
  sans-serif; }
main, footer { max-width: 74rem; margin: 0 auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 2rem 0 0.5rem; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.5rem; }
.summary { max-width: 44rem; }
.note, figcaption { color: var(--quiet); font-size: 0.9rem; margin: 0.25rem 0 0.75rem; }
.wide { margin-top: 1rem; }
.cards { display: grid; gap: 0.75rem 1.5rem; padding: 0; list-style: none; }
.cards li { border-top: 1px solid var(--faint); padding-top: 0.5rem; }
.cards .figures { color: var(--quiet); font-size: 0.9rem; }
.pictures { display: grid; gap: 1rem 1.5rem; margin-top: 1.5rem; }
figure { margin: 0; min-width: 0; }
table { width: 100%; border-collapse: collapse; font-size: 0.95rem; }
th, td { text-align: start; vertical-align: baseline; padding: 0.4rem 0.75rem 0.4rem 0; }
tbody tr { border-top: 1px solid var(--faint); }
thead th { color: var(--quiet); font-weight: normal; font-size: 0.85rem; }
.ends th:first-child { width: 8rem; }
.ends tbody th { font-weight: 600; }
.topic { display: block; color: var(--quiet); font-weight: normal; font-size: 0.85rem; }
.timeline th { color: var(--quiet); font-weight: normal; font-size: 0.85rem; }
.timeline th:first-child { width: 4.5rem; text-align: end; overflow-wrap: normal;
  font-variant-numeric: tabular-nums; }
.timeline td, .timeline th { padding-top: 0.2rem; padding-bottom: 0.2rem; }
mark { background: var(--changed); color: inherit; border-radius: 0.2em; }
.frozen { color: #767b84; }
details { border-top: 1px solid var(--faint); }
summary { cursor: pointer; padding: 0.5rem 0; font-weight: 600; }
summary .topic { display: inline; margin-left: 0.5rem; }
.signature { font-size: 0.85rem; color: var(--quiet); margin-bottom: 3rem; }
@media (min-width: 64rem) {
  .pictures { grid-template-columns: repeat(3, minmax(0, 1fr)); }
}
@media (max-width: 40rem) {
  .ends tr { display: grid; grid-template-columns: 1fr 1fr; }
  .ends th:first-child { grid-column: 1 / -1; width: auto; padding-bottom: 0; }
  .ends thead th:first-child { display: none; }
  .ends .topic { display: inline; margin-left: 0.5rem; }
  .timeline th:first-child { width: 3.2rem; }
}
"""
