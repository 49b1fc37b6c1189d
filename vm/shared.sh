# What the cases about schedulers share; they read it in.
exec 2>&1
state() { cat /sys/kernel/sched_ext/state; }
# A program with so many threads named loop of so many rounds each.
many() { echo "for n in \$(seq $1); do loop $2 & done; wait"; }
endless=99999999999
# Where threads named loop are, seen ten times.
where() { for i in 0 1 2 3 4 5 6 7 8 9; do for p in $(pidof loop); do read -r stat </proc/$p/stat && set -- $stat && echo ${39}; done; sleep 0.02; done | sort -u | tr '\n' ' '; }
masks() { for p in $(pidof loop); do taskset -p $p; done | sed 's/.*: //' | sort -u | tr '\n' ' '; }
# Waits until so many threads run, or the scheduler has ended.
started() { for i in $(seq 300); do [ $(pidof loop | wc -w) -ge $1 ] && break; sleep 0.1; done; sleep 0.5; }
ended() { for i in $(seq 50); do [ "$(state)" = disabled ] && break; sleep 0.1; done; state; }
# Ends a run in the background, and its threads.
end() { kill $1; for p in $(pidof loop); do kill $p; done; wait $1; }
