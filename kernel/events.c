// SPDX-License-Identifier: GPL-2.0-only
/* Doorbells and port-writes: queued by the sender, delivered by a work item of the receiver. */
#include "rio_soft.h"

static void deliver_doorbell(struct rs_port *port, const struct rs_doorbell *doorbell)
{
	struct rio_dbell *range;
	bool is_heard = false;

	mutex_lock(&port->mport.lock);
	list_for_each_entry(range, &port->mport.dbells, node) {
		if (range->res->start <= doorbell->info && doorbell->info <= range->res->end) {
			range->dinb(&port->mport, range->dev_id, doorbell->source,
				    doorbell->destination, doorbell->info);
			is_heard = true;
			break;
		}
	}
	mutex_unlock(&port->mport.lock);
	if (!is_heard)
		rs_count(port, RS_UNHEARD_DOORBELLS);
}

static void deliver_events(struct work_struct *work)
{
	struct rs_port *port = container_of(work, struct rs_port, events);
	struct rs_doorbell doorbell;
	union rio_pw_msg message;

	while (kfifo_out_spinlocked(&port->doorbells, &doorbell, 1, &port->event_lock))
		deliver_doorbell(port, &doorbell);
	while (kfifo_out_spinlocked(&port->portwrites, &message, 1, &port->event_lock))
		rio_inb_pwrite_handler(&port->mport, &message);
}

void rs_events_init(struct rs_port *port)
{
	spin_lock_init(&port->event_lock);
	INIT_WORK(&port->events, deliver_events);
	INIT_KFIFO(port->doorbells);
	INIT_KFIFO(port->portwrites);
}

int rs_queue_doorbell(struct rs_port *to, u16 source, u16 destination, u16 info)
{
	struct rs_doorbell doorbell = { source, destination, info };
	unsigned long flags;
	int error = 0;

	spin_lock_irqsave(&to->event_lock, flags);
	if (!to->is_running)
		error = -ENODEV;
	else if (!kfifo_put(&to->doorbells, doorbell))
		error = -EAGAIN;
	else
		queue_work(to->work, &to->events);
	spin_unlock_irqrestore(&to->event_lock, flags);
	if (error == -EAGAIN)
		rs_count(to, RS_REFUSED_DOORBELLS);
	return error;
}

/* -ENODEV: nobody has the id; -EAGAIN: 1024 wait there, or at the link. */
int rs_send_doorbell(struct rs_port *from, u16 destid, u16 info)
{
	struct rs_port *to;

	if (from->link)
		return rs_link_doorbell(from, destid, info);
	to = rs_route(from, destid);
	if (!to)
		return -ENODEV;
	return rs_queue_doorbell(to, rs_port_destid(from), destid, info);
}

/* A port-write is never refused: one that finds no room, or nobody who wants it, is lost. */
int rs_send_portwrite(struct rs_port *from, u16 destid, const union rio_pw_msg *message)
{
	struct rs_port *to = rs_route(from, destid);
	unsigned long flags;
	bool is_lost = true;

	if (!to)
		return -ENODEV;
	spin_lock_irqsave(&to->event_lock, flags);
	if (to->is_running && READ_ONCE(to->hears_portwrites) &&
	    kfifo_put(&to->portwrites, *message)) {
		queue_work(to->work, &to->events);
		is_lost = false;
	}
	spin_unlock_irqrestore(&to->event_lock, flags);
	if (is_lost)
		rs_count(to, RS_LOST_PORTWRITES);
	return 0;
}
