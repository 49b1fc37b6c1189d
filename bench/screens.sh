#!/usr/bin/env bash
# Pictures of a report in headless Chromium at 1400 and 390 px, in the dark and on paper: bench/screens.sh REPORT.html FOLDER. Fails
# when the page is wider than the window, when details begin below 2,000 px, when a comparison takes more than one page of
# paper, or when timelines do not share cursor and zoom. Needs the package chromium.
set -euo pipefail
report=$(realpath "$1") folder=$2
mkdir -p "$folder"
browser() { chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars "$@" 2>/dev/null; }

# A copy that writes its own measures down.
measured=$(mktemp --suffix .html)
cat "$report" - >"$measured" <<'EOF'
<script>
const details = document.querySelector("details.more");
const top_px = details ? Math.round(details.getBoundingClientRect().top) : 0;
parent.postMessage(`${document.documentElement.scrollWidth} ${innerWidth} ${top_px}`, "*");
</script>
EOF
# Windows are no narrower than 500 px, frames are.
framed=$(mktemp --suffix .html)
trap 'rm -f "$measured" "$framed"' EXIT
for width in 1400 390; do
    browser --window-size=$width,2000 --screenshot="$folder/$width.png" "file://$report"
    cat >"$framed" <<EOF
<iframe src="file://$measured" width=$width height=2000 style="border:0"></iframe>
<script>onmessage = event => document.documentElement.dataset.measures = event.data;</script>
EOF
    read -r page window details < <(browser --virtual-time-budget=5000 --window-size=1500,2100 --dump-dom "file://$framed" |
        grep -o 'data-measures="[^"]*"' | head -n 1 | tr -d '"' | cut -d= -f2)
    echo "$width px: page $page wide in a window of $window, details begin at $details px"
    [ "$page" -le "$window" ] && [ "$details" -lt 2000 ] || failed=1
done
browser --window-size=1400,1200 --blink-settings=preferredColorScheme=0 --screenshot="$folder/dark.png" "file://$report"

# A copy whose first timeline is pointed at and then zoomed, as a hand would; the others have to follow.
cat "$report" - >"$measured" <<'EOF'
<script>
document.querySelectorAll("details").forEach(d => d.open = true);
const charts = [...document.querySelectorAll("svg[data-end]")].filter(c => c.getBoundingClientRect().width);
const group = charts.filter(c => c.closest("details.more, section.counted") === charts[0]?.closest("details.more, section.counted"));
const send = (type, share) => {
    const inner = charts[0].querySelector("svg.time").getBoundingClientRect();
    charts[0].dispatchEvent(new PointerEvent(type, { clientX: inner.left + share * inner.width, clientY: inner.top + 4, pointerId: 1, bubbles: true }));
};
let said = "none";
if (charts.length) {
    charts[0].setPointerCapture = () => {};
    send("pointerdown", .2); send("pointermove", .7);
    const cursors = group.filter(c => c.querySelector("line.cursor").getAttribute("visibility") === "visible").length;
    send("pointerup", .7);
    const zoomed = group.filter(c => c.classList.contains("zoomed")).length;
    said = `${group.length} ${cursors} ${zoomed}`;
    const place = charts[0].closest("section[id]");
    document.querySelectorAll("header, h2, details.more section[id], .verdict, .scroll").forEach(e => { if (e !== place) e.style.display = "none"; });
}
document.documentElement.dataset.timelines = said;
</script>
EOF
browser --window-size=1400,1400 --screenshot="$folder/zoomed.png" "file://$measured"
timelines=$(browser --window-size=1400,1400 --dump-dom "file://$measured" | grep -o 'data-timelines="[^"]*"' | head -n 1 | tr -d '"' | cut -d= -f2)
echo "timelines: $timelines (all, with a cursor, zoomed)"
read -r all cursors zoomed <<<"$timelines"
[ "$all" = none ] || { [ "$all" = "$cursors" ] && [ "$all" = "$zoomed" ]; } || failed=1

browser --print-to-pdf="$folder/print.pdf" --no-pdf-header-footer "file://$report"
pages=$(grep -ac '/Type */Page\b' "$folder/print.pdf")
echo "print: $pages pages"
[ "$pages" -le 1 ] || failed=1
exit "${failed:-0}"
