#!/bin/sh
# Monitoring module: steer stat -i 1s --module examples/modules/load.sh -- ./program
# It delivers a value of the whole machine, the load average of the last minute, and needs no events.
echo '{"module": 1, "counters": [{"name": "load_average", "unit": "1", "prose": "runnable threads, mean of a minute"}]}'
while read -r window; do
    read -r load rest </proc/loadavg
    echo "{\"values\": [{\"counter\": \"load_average\", \"value\": $load}]}"
done
