/* Loads a scheduler of sched_ext and keeps it: load FILE.bpf.o. Prints a line when the kernel has it. */
#include <bpf/libbpf.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words)
{
	struct bpf_object *object = count > 1 ? bpf_object__open_file(words[1], NULL) : NULL;
	struct bpf_map *map;

	if (!object || bpf_object__load(object))
		return 1;
	bpf_object__for_each_map(map, object)
		if (bpf_map__type(map) == BPF_MAP_TYPE_STRUCT_OPS && !bpf_map__attach_struct_ops(map))
			return 1;
	puts("loaded");
	fflush(stdout);
	for (;;)
		pause();
}
