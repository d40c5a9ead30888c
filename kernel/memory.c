// SPDX-License-Identifier: GPL-2.0-only
/*
 * Memory that the fabric reads and writes.  A block is what dma_alloc_coherent()
 * gives for a port: pages in a row, whose address is their physical one.  An inbound
 * window shows (part of) a block under an address of the fabric.  An outbound window
 * is the block of the other port itself, which it keeps until it is unmapped: a
 * process may still have it mapped when its owner has closed the window.
 */
#include <linux/dma-map-ops.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/slab.h>

#ifndef CONFIG_DMA_OPS
#error "rio_soft has DMA operations of its own: it needs a kernel with CONFIG_DMA_OPS, as those of distributions have"
#endif

#include "rio_soft.h"

#define MAX_BLOCK_BYTES SZ_4M	/* as many pages in a row as the kernel gives */

static atomic64_t rs_window_number = ATOMIC64_INIT(0);
static DEFINE_SPINLOCK(rs_block_lock);
static LIST_HEAD(rs_blocks);

static void free_block(struct kref *ref)
{
	struct rs_block *block = container_of(ref, struct rs_block, ref);

	atomic_dec(&block->port->blocks);
	free_pages_exact(block->memory, block->bytes);
	kfree(block);
}

static void put_block(struct rs_block *block)
{
	kref_put(&block->ref, free_block);
}

/* The block that has all the bytes, with a count of its own, or NULL. */
static struct rs_block *get_block(phys_addr_t start, u64 bytes)
{
	struct rs_block *block, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&rs_block_lock, flags);
	list_for_each_entry(block, &rs_blocks, node) {
		if (start >= block->start && start - block->start < block->bytes &&
		    bytes <= block->bytes - (start - block->start)) {
			kref_get(&block->ref);
			found = block;
			break;
		}
	}
	spin_unlock_irqrestore(&rs_block_lock, flags);
	return found;
}

static void *alloc_block(struct device *device, size_t size, dma_addr_t *handle, gfp_t gfp,
			 unsigned long attributes)
{
	struct rs_block *block;
	unsigned long flags;

	if (size == 0 || size > MAX_BLOCK_BYTES)
		return NULL;
	block = kzalloc(sizeof(*block), gfp);
	if (!block)
		return NULL;
	kref_init(&block->ref);
	block->bytes = PAGE_ALIGN(size);
	block->memory = alloc_pages_exact(block->bytes, gfp | __GFP_ZERO | __GFP_NOWARN);
	if (!block->memory) {
		kfree(block);
		return NULL;
	}
	block->start = virt_to_phys(block->memory);
	block->port = dev_get_drvdata(device);
	atomic_inc(&block->port->blocks);
	*handle = block->start;
	spin_lock_irqsave(&rs_block_lock, flags);
	list_add_tail(&block->node, &rs_blocks);
	spin_unlock_irqrestore(&rs_block_lock, flags);
	return block->memory;
}

static void release_block(struct device *device, size_t size, void *memory, dma_addr_t handle,
			  unsigned long attributes)
{
	struct rs_block *block, *found = NULL;
	unsigned long flags;

	spin_lock_irqsave(&rs_block_lock, flags);
	list_for_each_entry(block, &rs_blocks, node) {
		if (block->memory == memory) {
			list_del(&block->node);
			found = block;
			break;
		}
	}
	spin_unlock_irqrestore(&rs_block_lock, flags);
	if (!WARN_ON(!found))
		put_block(found);
}

static int mmap_block(struct device *device, struct vm_area_struct *vma, void *memory,
		      dma_addr_t handle, size_t size, unsigned long attributes)
{
	unsigned long pages = vma_pages(vma);
	struct rs_block *block = get_block(handle, size);
	int error = -ENXIO;

	if (!block)
		return -ENXIO;
	if (vma->vm_pgoff < block->bytes >> PAGE_SHIFT &&
	    pages <= (block->bytes >> PAGE_SHIFT) - vma->vm_pgoff)
		error = remap_pfn_range(vma, vma->vm_start, PHYS_PFN(block->start) + vma->vm_pgoff,
					pages << PAGE_SHIFT, vma->vm_page_prot);
	put_block(block);	/* the caller keeps the one that it allocated */
	return error;
}

static dma_addr_t map_page(struct device *device, struct page *page, unsigned long offset,
			   size_t size, enum dma_data_direction direction, unsigned long attributes)
{
	return page_to_phys(page) + offset;
}

static void unmap_page(struct device *device, dma_addr_t handle, size_t size,
		       enum dma_data_direction direction, unsigned long attributes)
{
}

static int map_list(struct device *device, struct scatterlist *list, int count,
		    enum dma_data_direction direction, unsigned long attributes)
{
	struct scatterlist *each;
	int i;

	for_each_sg(list, each, count, i) {
		sg_dma_address(each) = sg_phys(each);
		sg_dma_len(each) = each->length;
	}
	return count;
}

static void unmap_list(struct device *device, struct scatterlist *list, int count,
		       enum dma_data_direction direction, unsigned long attributes)
{
}

const struct dma_map_ops rs_memory_ops = {
	.alloc = alloc_block,
	.free = release_block,
	.mmap = mmap_block,
	.map_page = map_page,
	.unmap_page = unmap_page,
	.map_sg = map_list,
	.unmap_sg = unmap_list,
};

static bool overlaps(const struct rs_window *window, u64 start, u64 bytes)
{
	return start < window->start + window->bytes && window->start < start + bytes;
}

int rs_map_in(struct rio_mport *mport, dma_addr_t local, u64 start, u64 bytes, u32 flags)
{
	struct rs_port *port = to_rs_port(mport);
	struct rs_window *window, *free = NULL;
	struct rs_block *block;
	unsigned long irq_flags;
	int error = -EBUSY;

	if (bytes == 0 || start + bytes < start || !PAGE_ALIGNED(start) || !PAGE_ALIGNED(local))
		return -EINVAL;
	block = get_block(local, bytes);
	if (!block)
		return -EINVAL;
	spin_lock_irqsave(&port->window_lock, irq_flags);
	for (window = port->in; window < port->in + RS_IN_WINDOWS; window++) {
		if (!window->block) {
			if (!free)
				free = window;
		} else if (overlaps(window, start, bytes)) {
			free = NULL;
			break;
		}
	}
	if (free) {
		*free = (struct rs_window) {
			.block = block,
			.start = start,
			.bytes = bytes,
			.offset = local - block->start,
			.number = atomic64_inc_return(&rs_window_number),
		};
		error = 0;
	}
	spin_unlock_irqrestore(&port->window_lock, irq_flags);
	if (error)
		put_block(block);
	return error;
}

void rs_unmap_in(struct rio_mport *mport, dma_addr_t local)
{
	struct rs_port *port = to_rs_port(mport);
	struct rs_block *block = NULL;
	struct rs_window *window;
	unsigned long flags;

	spin_lock_irqsave(&port->window_lock, flags);
	for (window = port->in; window < port->in + RS_IN_WINDOWS; window++) {
		if (window->block && window->block->start + window->offset == local) {
			block = window->block;
			window->block = NULL;
			break;
		}
	}
	spin_unlock_irqrestore(&port->window_lock, flags);
	if (block)
		put_block(block);
}

/* The memory behind `address`, its block counted; *bytes becomes what of it is there. */
static void *find_memory(struct rs_port *port, u64 address, size_t *bytes, struct rs_block **block)
{
	const struct rs_window *window;
	void *memory = NULL;
	unsigned long flags;

	spin_lock_irqsave(&port->window_lock, flags);
	for (window = port->in; window < port->in + RS_IN_WINDOWS; window++) {
		if (!window->block || address < window->start ||
		    address - window->start >= window->bytes)
			continue;
		*bytes = min_t(u64, *bytes, window->bytes - (address - window->start));
		*block = window->block;
		kref_get(&window->block->ref);
		memory = window->block->memory + window->offset + (address - window->start);
		break;
	}
	spin_unlock_irqrestore(&port->window_lock, flags);
	return memory;
}

bool rs_find_window(struct rs_port *port, u64 *address, u64 *bytes, u64 *number)
{
	const struct rs_window *window;
	unsigned long flags;
	bool is_found = false;

	spin_lock_irqsave(&port->window_lock, flags);
	for (window = port->in; window < port->in + RS_IN_WINDOWS && !is_found; window++) {
		if (!window->block || *address < window->start ||
		    *address - window->start >= window->bytes)
			continue;
		*address = window->start;
		*bytes = window->bytes;
		*number = window->number;
		is_found = true;
	}
	spin_unlock_irqrestore(&port->window_lock, flags);
	return is_found;
}

static void open_mapping(struct vm_area_struct *vma)
{
	struct rs_block *block = vma->vm_private_data;

	kref_get(&block->ref);
}

static void close_mapping(struct vm_area_struct *vma)
{
	put_block(vma->vm_private_data);
}

static const struct vm_operations_struct mapping_operations = {
	.open = open_mapping,
	.close = close_mapping,
};

/* At the window's address in the fabric; the memory stays as long as the mapping does. */
int rs_map_window(struct rs_port *port, struct vm_area_struct *vma)
{
	size_t bytes = vma->vm_end - vma->vm_start, there = bytes;
	struct rs_block *block;
	int error = -ENXIO;
	void *memory;

	if (!(vma->vm_flags & VM_SHARED))
		return -EINVAL;
	memory = find_memory(port, (u64)vma->vm_pgoff << PAGE_SHIFT, &there, &block);
	if (!memory)
		return -ENXIO;
	if (there == bytes && PAGE_ALIGNED(memory))
		error = remap_pfn_range(vma, vma->vm_start, PHYS_PFN(virt_to_phys(memory)), bytes,
					vma->vm_page_prot);
	if (error) {
		put_block(block);
		return error;
	}
	vma->vm_private_data = block;
	vma->vm_ops = &mapping_operations;
	return 0;
}

/* What one packet would have moved at most: one that hits no window is lost, the next may hit. */
static size_t packet_rest(u64 address, size_t bytes)
{
	return min_t(size_t, bytes, RS_PACKET_BYTES - (address & (RS_PACKET_BYTES - 1)));
}

static int access_window(struct rs_port *port, u64 address, void *local, size_t bytes, bool write)
{
	struct rs_block *block;
	int error = 0;

	while (bytes > 0) {
		size_t piece = bytes;
		void *memory = find_memory(port, address, &piece, &block);

		if (!memory) {
			rs_count(port, RS_LOST_PACKETS);
			piece = packet_rest(address, bytes);
			error = -EIO;
		} else {
			if (write)
				memcpy(memory, local, piece);
			else
				memcpy(local, memory, piece);
			put_block(block);
		}
		address += piece;
		local += piece;
		bytes -= piece;
	}
	return error;
}

int rs_window_write(struct rs_port *port, u64 address, const void *from, size_t bytes)
{
	return access_window(port, address, (void *)from, bytes, true);
}

int rs_window_read(struct rs_port *port, u64 address, void *to, size_t bytes)
{
	return access_window(port, address, to, bytes, false);
}

/* -ENODEV: nobody has the id; -ENXIO: it shows no window there. */
int rs_map_out(struct rio_mport *mport, u16 destid, u64 start, u32 bytes, u32 flags,
	       dma_addr_t *local)
{
	struct rs_port *port = to_rs_port(mport);
	struct rs_port *target = rs_route(port, destid);
	struct rs_window *window;
	struct rs_block *block;
	size_t there = bytes;
	unsigned long irq_flags;
	void *memory;
	int error = -EBUSY;

	if (bytes == 0 || start + bytes < start || !PAGE_ALIGNED(start))
		return -EINVAL;
	if (port->link)
		return -EOPNOTSUPP;
	if (!target)
		return -ENODEV;
	memory = find_memory(target, start, &there, &block);
	if (!memory)
		return -ENXIO;
	if (there < bytes || !PAGE_ALIGNED(memory)) {
		put_block(block);
		return -ENXIO;
	}
	spin_lock_irqsave(&port->window_lock, irq_flags);
	for (window = port->out; window < port->out + RS_OUT_WINDOWS; window++) {
		if (window->block)
			continue;
		*window = (struct rs_window) {
			.block = block,
			.start = start,
			.bytes = bytes,
			.offset = memory - block->memory,
			.destid = destid,
		};
		*local = block->start + window->offset;
		error = 0;
		break;
	}
	spin_unlock_irqrestore(&port->window_lock, irq_flags);
	if (error)
		put_block(block);
	return error;
}

void rs_unmap_out(struct rio_mport *mport, u16 destid, u64 start)
{
	struct rs_port *port = to_rs_port(mport);
	struct rs_block *block = NULL;
	struct rs_window *window;
	unsigned long flags;

	spin_lock_irqsave(&port->window_lock, flags);
	for (window = port->out; window < port->out + RS_OUT_WINDOWS; window++) {
		if (window->block && window->destid == destid && window->start == start) {
			block = window->block;
			window->block = NULL;
			break;
		}
	}
	spin_unlock_irqrestore(&port->window_lock, flags);
	if (block)
		put_block(block);
}
