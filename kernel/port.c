// SPDX-License-Identifier: GPL-2.0-only
/* One master port as the RapidIO core sees it. */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/module.h>

#include "rio_soft.h"

static int local_read(struct rio_mport *mport, int index, u32 offset, int length, u32 *value)
{
	if (length != sizeof(u32))
		return -EINVAL;
	return rs_local_read(to_rs_port(mport), offset, value);
}

static int local_write(struct rio_mport *mport, int index, u32 offset, int length, u32 value)
{
	if (length != sizeof(u32))
		return -EINVAL;
	return rs_local_write(to_rs_port(mport), offset, value);
}

static int remote_read(struct rio_mport *mport, int index, u16 destid, u8 hops, u32 offset,
		       int length, u32 *value)
{
	if (length != sizeof(u32))
		return -EINVAL;
	return rs_remote_read(to_rs_port(mport), destid, hops, offset, value);
}

static int remote_write(struct rio_mport *mport, int index, u16 destid, u8 hops, u32 offset,
			int length, u32 value)
{
	if (length != sizeof(u32))
		return -EINVAL;
	return rs_remote_write(to_rs_port(mport), destid, hops, offset, value);
}

static int send_doorbell(struct rio_mport *mport, int index, u16 destid, u16 info)
{
	return rs_send_doorbell(to_rs_port(mport), destid, info);
}

static int enable_portwrites(struct rio_mport *mport, int enable)
{
	WRITE_ONCE(to_rs_port(mport)->hears_portwrites, enable != 0);
	return 0;
}

static int query(struct rio_mport *mport, struct rio_mport_attr *attributes)
{
	rs_pin(to_rs_port(mport));
	memset(attributes, 0, sizeof(*attributes));
	attributes->flags = RIO_MPORT_DMA | RIO_MPORT_DMA_SG;
	attributes->link_speed = RIO_LINK_500;
	attributes->link_width = RIO_LINK_4X;
	attributes->dma_max_sge = 0;	/* as many as wanted */
	attributes->dma_max_size = 0;	/* as large as wanted */
	attributes->dma_align = 0;
	return 0;
}

static struct rio_ops port_ops = {
	.lcread = local_read,
	.lcwrite = local_write,
	.cread = remote_read,
	.cwrite = remote_write,
	.dsend = send_doorbell,
	.pwenable = enable_portwrites,
	.open_outb_mbox = rs_open_outbox,
	.close_outb_mbox = rs_close_outbox,
	.open_inb_mbox = rs_open_inbox,
	.close_inb_mbox = rs_close_inbox,
	.add_outb_message = rs_add_outbound,
	.add_inb_buffer = rs_add_inbound,
	.get_inb_message = rs_take_inbound,
	.map_inb = rs_map_in,
	.unmap_inb = rs_unmap_in,
	.map_outb = rs_map_out,
	.unmap_outb = rs_unmap_out,
	.query_mport = query,
};

static void port_released(struct device *device)
{
	struct rio_mport *mport = container_of(device, struct rio_mport, dev);

	complete(&to_rs_port(mport)->released);
}

static void release_net(struct device *device)
{
	kfree(to_rio_net(device));
}

/*
 * The network that RIO_DEV_ADD adds devices to.  Where a port has none, rio_mport_cdev
 * makes one that only rio_mport_cdev can free, and it may be unloaded before the port.
 */
static void make_net(struct rio_mport *mport)
{
	struct rio_net *net = rio_alloc_net(mport);

	if (!net)
		return;
	net->id = mport->id;
	net->hport = mport;
	dev_set_name(&net->dev, "rnet_%d", net->id);
	net->dev.parent = &mport->dev;
	net->dev.release = release_net;
	if (rio_add_net(net)) {
		put_device(&net->dev);
		mport->net = NULL;
	}
}

int rs_port_create(struct rs_port *port)
{
	struct device *device = &port->device->dev;
	struct rio_mport *mport = &port->mport;
	int error;

	init_completion(&port->released);
	spin_lock_init(&port->window_lock);
	rs_events_init(port);
	rs_messages_init(port);
	error = dma_coerce_mask_and_coherent(device, DMA_BIT_MASK(64));
	if (error)
		return error;
	set_dma_ops(device, &rs_memory_ops);
	port->work = alloc_workqueue("rio_soft%u", WQ_UNBOUND, 0, port->index);
	if (!port->work)
		return -ENOMEM;

	error = rio_mport_initialize(mport);
	if (error)
		goto destroy_work;
	mport->ops = &port_ops;
	mport->index = 0;	/* of its only link */
	mport->sys_size = rs_has_large_ids;
	mport->phys_efptr = 0x100;
	mport->phys_rmap = 1;
	mport->dev.parent = device;
	mport->dev.release = port_released;
	mport->priv = port;
	INIT_LIST_HEAD(&mport->dbells);
	rio_init_dbell_res(&mport->riores[RIO_DOORBELL_RESOURCE], 0, 0xffff);
	rio_init_mbox_res(&mport->riores[RIO_INB_MBOX_RESOURCE], 0, RIO_MAX_MBOX - 1);
	rio_init_mbox_res(&mport->riores[RIO_OUTB_MBOX_RESOURCE], 0, RIO_MAX_MBOX - 1);
	snprintf(mport->name, sizeof(mport->name), "rio_soft%u", port->index);
	if (mport->host_deviceid >= 0)
		rs_set_destid(port, mport->host_deviceid);

	if (rs_is_linked) {
		error = rs_link_create(port);
		if (error)
			goto destroy_work;
	}
	error = rs_dma_create(port);
	if (error)
		goto destroy_link;
	WRITE_ONCE(port->is_running, true);
	error = rio_register_mport(mport);
	if (error)
		goto stop;
	if (rs_is_linked)	/* others get theirs from rio-scan */
		make_net(mport);
	return 0;

stop:
	/*
	 * The core keeps the port in its list when the device cannot be added: only
	 * the opposite of registering takes it out, and it wants a device to remove.
	 */
	WARN(1, "rio_soft%u: the core refused it: %d\n", port->index, error);
	__module_get(THIS_MODULE);
	return 0;
destroy_link:
	rs_link_destroy(port);
destroy_work:
	destroy_workqueue(port->work);
	return error;
}

void rs_port_destroy(struct rs_port *port)
{
	rio_unregister_mport(&port->mport);
	wait_for_completion(&port->released);
	spin_lock_irq(&port->event_lock);	/* whoever sends an event has this */
	WRITE_ONCE(port->is_running, false);
	spin_unlock_irq(&port->event_lock);
	rs_dma_destroy(port);
	destroy_workqueue(port->work);
	rs_link_destroy(port);
}
