// SPDX-License-Identifier: GPL-2.0-only
/*
 * The DMA engine of a port: lanes, each of which does one transfer at a time, in
 * the order in which they were submitted.  Lanes overtake each other.
 *
 * A write without a response is complete when it has left, whatever becomes of it.
 * A read, or a write with a response, fails if any of its packets found no window;
 * what found one has been moved.  tx_status() says DMA_ERROR for it, while its
 * callback runs: later it counts as complete, as the engine's cookies know no more.
 */
#include <linux/highmem.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "rio_soft.h"
#include "rio_soft_link.h"

struct rs_transfer {
	struct dma_async_tx_descriptor tx;
	struct list_head node;
	struct scatterlist *list;	/* the submitter's, until its callback */
	unsigned int count;
	u64 address;
	u16 destid;
	bool is_write;
	bool has_response;
};

static struct rs_lane *to_lane(struct dma_chan *chan)
{
	return container_of(chan, struct rs_lane, chan);
}

static int move_piece(struct rs_port *to, const struct rs_transfer *transfer, u64 address,
		      struct page *page, size_t offset, size_t bytes)
{
	u8 *local = kmap_local_page(page);
	int error;

	if (transfer->is_write)
		error = rs_window_write(to, address, local + offset, bytes);
	else
		error = rs_window_read(to, address, local + offset, bytes);
	kunmap_local(local);
	return error;
}

static int move_to(struct rs_port *to, const struct rs_transfer *transfer)
{
	u64 address = transfer->address;
	struct scatterlist *each;
	unsigned int i;
	int error = 0;

	for_each_sg(transfer->list, each, transfer->count, i) {
		struct page *page = sg_page(each) + (each->offset >> PAGE_SHIFT);
		size_t offset = offset_in_page(each->offset);
		size_t left = each->length;

		while (left > 0) {
			size_t piece = min_t(size_t, left, PAGE_SIZE - offset);
			int result = move_piece(to, transfer, address, page, offset, piece);

			if (result)
				error = result;
			address += piece;
			left -= piece;
			offset = 0;
			page++;
			cond_resched();
		}
	}
	return error;
}

/* Piece by piece: all of them, though one fails, unless nobody is there. */
static int move_outside(struct rs_lane *lane, const struct rs_transfer *transfer)
{
	struct rs_port *port = lane->port;
	struct scatterlist *each;
	u64 bytes = 0, done = 0;
	int error = 0;
	unsigned int i;
	u8 *buffer;

	for_each_sg(transfer->list, each, transfer->count, i)
		bytes += each->length;
	buffer = kvmalloc(min_t(u64, bytes, RS_LINK_MAX_BYTES), GFP_KERNEL);
	if (!buffer)
		return -ENOMEM;
	while (done < bytes && error != -ENODEV) {
		size_t piece = min_t(u64, bytes - done, RS_LINK_MAX_BYTES);
		u64 address = transfer->address + done;
		int result;

		if (transfer->is_write) {
			sg_pcopy_to_buffer(transfer->list, transfer->count, buffer, piece, done);
			result = rs_link_write(port, transfer->destid, address, buffer, piece,
					       transfer->has_response, lane - port->lanes);
		} else {
			result = rs_link_read(port, transfer->destid, address, buffer, piece,
					      lane - port->lanes);
			if (!result)
				sg_pcopy_from_buffer(transfer->list, transfer->count, buffer,
						     piece, done);
		}
		if (result) {
			rs_count(port, RS_LOST_PACKETS);
			error = result;
		}
		done += piece;
	}
	kvfree(buffer);
	return error;
}

static int move(struct rs_lane *lane, const struct rs_transfer *transfer)
{
	struct rs_port *members[RS_MAX_PORTS], *from = lane->port;
	unsigned int count = 0, i;
	struct rs_port *to;

	if (from->link)
		return move_outside(lane, transfer);
	/* Of many targets none can answer for all: such a request goes the way of its id alone. */
	if (!transfer->has_response)
		count = rs_members(from, transfer->destid, members);
	for (i = 0; i < count; i++)
		move_to(members[i], transfer);
	if (count)
		return 0;
	to = rs_route(from, transfer->destid);
	if (to)
		return move_to(to, transfer);
	rs_count(from, RS_LOST_PACKETS);
	return -ENODEV;
}

static void finish(struct rs_lane *lane, struct rs_transfer *transfer, bool has_failed)
{
	dma_async_tx_callback callback = transfer->tx.callback;
	void *parameter = transfer->tx.callback_param;
	unsigned long flags;

	spin_lock_irqsave(&lane->lock, flags);
	lane->chan.completed_cookie = transfer->tx.cookie;
	lane->failed = has_failed ? transfer->tx.cookie : 0;
	spin_unlock_irqrestore(&lane->lock, flags);
	if (callback)
		callback(parameter);
	spin_lock_irqsave(&lane->lock, flags);
	lane->failed = 0;
	spin_unlock_irqrestore(&lane->lock, flags);
	kfree(transfer);
}

static struct rs_transfer *next_transfer(struct rs_lane *lane)
{
	struct rs_transfer *transfer;
	unsigned long flags;

	spin_lock_irqsave(&lane->lock, flags);
	transfer = list_first_entry_or_null(&lane->issued, struct rs_transfer, node);
	if (transfer)
		list_del(&transfer->node);
	spin_unlock_irqrestore(&lane->lock, flags);
	return transfer;
}

static void work_lane(struct work_struct *work)
{
	struct rs_lane *lane = container_of(work, struct rs_lane, work);
	struct rs_transfer *transfer;

	while ((transfer = next_transfer(lane))) {
		int error = move(lane, transfer);

		finish(lane, transfer, error && transfer->has_response);
	}
}

static dma_cookie_t submit(struct dma_async_tx_descriptor *tx)
{
	struct rs_transfer *transfer = container_of(tx, struct rs_transfer, tx);
	struct rs_lane *lane = to_lane(tx->chan);
	dma_cookie_t cookie;
	unsigned long flags;

	spin_lock_irqsave(&lane->lock, flags);
	cookie = lane->chan.cookie + 1;
	if (cookie < DMA_MIN_COOKIE)
		cookie = DMA_MIN_COOKIE;
	lane->chan.cookie = cookie;
	tx->cookie = cookie;
	list_add_tail(&transfer->node, &lane->submitted);
	spin_unlock_irqrestore(&lane->lock, flags);
	return cookie;
}

static struct dma_async_tx_descriptor *
prepare(struct dma_chan *chan, struct scatterlist *list, unsigned int count,
	enum dma_transfer_direction direction, unsigned long flags, void *context)
{
	const struct rio_dma_ext *target = context;
	struct rs_transfer *transfer;
	struct scatterlist *each;
	u64 bytes = 0;
	unsigned int i;

	if (!target || !list || count == 0 || target->rio_addr_u)
		return ERR_PTR(-EINVAL);
	if (direction != DMA_MEM_TO_DEV && direction != DMA_DEV_TO_MEM)
		return ERR_PTR(-EINVAL);
	for_each_sg(list, each, count, i)
		bytes += each->length;
	if (bytes == 0 || target->rio_addr + (bytes - 1) < target->rio_addr)
		return ERR_PTR(-EINVAL);
	transfer = kzalloc(sizeof(*transfer), GFP_NOWAIT);
	if (!transfer)
		return ERR_PTR(-ENOMEM);
	dma_async_tx_descriptor_init(&transfer->tx, chan);
	transfer->tx.tx_submit = submit;
	transfer->tx.flags = flags;
	transfer->list = list;
	transfer->count = count;
	transfer->address = target->rio_addr;
	transfer->destid = target->destid;
	transfer->is_write = direction == DMA_MEM_TO_DEV;
	transfer->has_response = !transfer->is_write || target->wr_type != RDW_ALL_NWRITE;
	return &transfer->tx;
}

static void issue(struct dma_chan *chan)
{
	struct rs_lane *lane = to_lane(chan);
	unsigned long flags;

	spin_lock_irqsave(&lane->lock, flags);
	list_splice_tail_init(&lane->submitted, &lane->issued);
	spin_unlock_irqrestore(&lane->lock, flags);
	queue_work(lane->port->work, &lane->work);
}

static enum dma_status status(struct dma_chan *chan, dma_cookie_t cookie,
			      struct dma_tx_state *state)
{
	struct rs_lane *lane = to_lane(chan);
	enum dma_status result;
	unsigned long flags;

	spin_lock_irqsave(&lane->lock, flags);
	dma_set_tx_state(state, chan->completed_cookie, chan->cookie, 0);
	result = dma_async_is_complete(cookie, chan->completed_cookie, chan->cookie);
	if (result == DMA_COMPLETE && lane->failed == cookie)
		result = DMA_ERROR;
	spin_unlock_irqrestore(&lane->lock, flags);
	return result;
}

/* What has not begun has failed. */
static int terminate(struct dma_chan *chan)
{
	struct rs_lane *lane = to_lane(chan);
	struct rs_transfer *transfer, *next;
	unsigned long flags;
	LIST_HEAD(all);

	spin_lock_irqsave(&lane->lock, flags);
	list_splice_tail_init(&lane->issued, &all);
	list_splice_tail_init(&lane->submitted, &all);
	spin_unlock_irqrestore(&lane->lock, flags);
	flush_work(&lane->work);	/* the one under way completes first */
	list_for_each_entry_safe(transfer, next, &all, node)
		finish(lane, transfer, true);
	return 0;
}

static void synchronize(struct dma_chan *chan)
{
	flush_work(&to_lane(chan)->work);
}

static int take_lane(struct dma_chan *chan)
{
	chan->cookie = DMA_MIN_COOKIE;
	chan->completed_cookie = DMA_MIN_COOKIE;
	return 1;
}

static void free_lane(struct dma_chan *chan)
{
	terminate(chan);
}

int rs_dma_create(struct rs_port *port)
{
	struct dma_device *dma = &port->mport.dma;
	unsigned int i;

	INIT_LIST_HEAD(&dma->channels);
	for (i = 0; i < RS_LANES; i++) {
		struct rs_lane *lane = &port->lanes[i];

		lane->port = port;
		lane->chan.device = dma;
		spin_lock_init(&lane->lock);
		INIT_LIST_HEAD(&lane->submitted);
		INIT_LIST_HEAD(&lane->issued);
		INIT_WORK(&lane->work, work_lane);
		list_add_tail(&lane->chan.device_node, &dma->channels);
	}
	dma->dev = &port->device->dev;
	dma_cap_set(DMA_SLAVE, dma->cap_mask);
	dma_cap_set(DMA_PRIVATE, dma->cap_mask);
	dma->directions = BIT(DMA_MEM_TO_DEV) | BIT(DMA_DEV_TO_MEM);
	dma->residue_granularity = DMA_RESIDUE_GRANULARITY_DESCRIPTOR;
	dma->device_alloc_chan_resources = take_lane;
	dma->device_free_chan_resources = free_lane;
	dma->device_prep_slave_sg = prepare;
	dma->device_issue_pending = issue;
	dma->device_tx_status = status;
	dma->device_terminate_all = terminate;
	dma->device_synchronize = synchronize;
	return dma_async_device_register(dma);
}

void rs_dma_destroy(struct rs_port *port)
{
	dma_async_device_unregister(&port->mport.dma);
}
