/* Arenas: memory of the simulator, which one kind of pointer reaches. */
#ifndef COUNTERSTEER_ARENA_H
#define COUNTERSTEER_ARENA_H
#include <scx/common.bpf.h>
#include <bpf_atomic.h>

#define __arena_global
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096
#endif
#define __PAGE_SIZE PAGE_SIZE

static inline void *bpf_arena_alloc_pages(void *map, void *address, u32 pages, int node, u64 flags)
{
	(void)map; (void)node; (void)flags;
	/* Nothing chooses its addresses in an arena of the simulator. */
	return address ? NULL : sim.arena_alloc(sim.world, pages);
}
static inline void bpf_arena_free_pages(void *map, void *pages, u32 count)
{
	(void)map;
	sim.arena_free(sim.world, pages, count);
}
static inline int bpf_arena_reserve_pages(void *map, void *address, u32 pages) { (void)map; (void)address; (void)pages; return 0; }
static inline s64 bpf_arena_mapping_nr_pages(void *map) { (void)map; return 1 << 20; }

/* One CPU runs at a time, so a lock is never taken twice. */
#define arena_spinlock_t struct bpf_spin_lock
static inline int arena_spin_lock(arena_spinlock_t *lock) { (void)lock; return 0; }
static inline int arena_spin_trylock(arena_spinlock_t *lock) { (void)lock; return 1; }
static inline void arena_spin_unlock(arena_spinlock_t *lock) { (void)lock; }
#define arena_spin_lock_irqsave(lock, flags) ((void)(flags), arena_spin_lock(lock))
#define arena_spin_unlock_irqrestore(lock, flags) ((void)(flags), arena_spin_unlock(lock))

#endif
