#!/usr/bin/env bash
# Pictures of a report in headless Chromium at 1400 and 390 px and on paper: bench/screens.sh REPORT.html FOLDER. Fails when the
# page is wider than the window, or when details begin below 2,000 px. Needs the package chromium.
set -euo pipefail
report=$(realpath "$1") folder=$2
mkdir -p "$folder"
browser() { chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars "$@" 2>/dev/null; }

# A copy that writes its own measures down.
measured=$(mktemp --suffix .html)
trap 'rm -f "$measured"' EXIT
cat "$report" - >"$measured" <<'EOF'
<script>
const details = document.querySelector("details.more");
const top_px = details ? Math.round(details.getBoundingClientRect().top) : 0;
document.documentElement.dataset.measures = `${document.documentElement.scrollWidth} ${innerWidth} ${top_px}`;
</script>
EOF
for width in 1400 390; do
    browser --window-size=$width,2000 --screenshot="$folder/$width.png" "file://$report"
    read -r page window details < <(browser --window-size=$width,2000 --dump-dom "file://$measured" |
        grep -o 'data-measures="[^"]*"' | head -n 1 | tr -d '"' | cut -d= -f2)
    echo "$width px: page $page wide in a window of $window, details begin at $details px"
    [ "$page" -le "$window" ] && [ "$details" -lt 2000 ] || failed=1
done
browser --print-to-pdf="$folder/print.pdf" --no-pdf-header-footer "file://$report"
echo "print: $(grep -ac '/Type */Page\b' "$folder/print.pdf") pages"
exit "${failed:-0}"
