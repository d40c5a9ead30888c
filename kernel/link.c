// SPDX-License-Identifier: GPL-2.0-only
/*
 * Links that lead out of the kernel: each port's ends at a character device, whose
 * process carries requests and answers between the port and a fabric elsewhere
 * (rio_soft_link.h).  Reliability, sessions and packets are that process's.
 *
 * A request is in one of two lists while somebody waits for it: those that nobody has
 * fetched, and those that wait for their answer.  Whoever takes it out of the list
 * ends it.  A doorbell has nobody who waits, and ends when it is fetched.
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "rio_soft.h"
#include "rio_soft_link.h"

#define MAX_DOORBELLS	1024
#define MAX_WAIT_MS	60000	/* of RS_LINK_NEXT */
#define ANSWER_WAIT_MS	30000	/* longer than a fabric takes to give a peer up */

struct request {
	struct list_head node;
	struct kref ref;
	struct completion done;
	struct rs_link_request head;
	int error;
	u8 *data;
};

struct rs_link {
	struct miscdevice device;
	char name[24];
	struct rs_port *port;
	spinlock_t lock;	/* all below */
	wait_queue_head_t arrived;
	bool is_open;
	u32 last_id;
	unsigned int doorbells;
	struct list_head fresh;
	struct list_head fetched;
};

static void free_request(struct kref *ref)
{
	struct request *request = container_of(ref, struct request, ref);

	kvfree(request->data);
	kfree(request);
}

static void put_request(struct request *request)
{
	kref_put(&request->ref, free_request);
}

static struct request *new_request(const struct rs_link_request *head, gfp_t gfp)
{
	struct request *request = kzalloc(sizeof(*request), gfp);

	if (!request)
		return NULL;
	INIT_LIST_HEAD(&request->node);
	kref_init(&request->ref);
	init_completion(&request->done);
	request->head = *head;
	request->error = -ENODEV;
	return request;
}

bool rs_link_is_up(const struct rs_port *port)
{
	return port->link && READ_ONCE(port->link->is_open);
}

/* Consumes the caller's count if it succeeds and nobody will wait. */
static int add_request(struct rs_link *link, struct request *request)
{
	unsigned long flags;
	int error = 0;

	spin_lock_irqsave(&link->lock, flags);
	if (!link->is_open) {
		error = -ENODEV;
	} else if (request->head.kind == RS_LINK_DOORBELL) {
		if (link->doorbells == MAX_DOORBELLS)
			error = -EAGAIN;
		else
			link->doorbells++;
	} else {
		do {
			request->head.id = ++link->last_id;
		} while (!request->head.id);
	}
	if (!error)
		list_add_tail(&request->node, &link->fresh);
	spin_unlock_irqrestore(&link->lock, flags);
	if (!error)
		wake_up_all(&link->arrived);
	return error;
}

static int wait_for_answer(struct rs_link *link, struct request *request)
{
	if (!wait_for_completion_timeout(&request->done, msecs_to_jiffies(ANSWER_WAIT_MS))) {
		spin_lock_irq(&link->lock);
		if (!list_empty(&request->node)) {
			list_del_init(&request->node);
			request->error = -EIO;
			complete(&request->done);
		}
		spin_unlock_irq(&link->lock);
		wait_for_completion(&request->done);	/* whoever took it out completes it */
	}
	return request->error;
}

int rs_link_doorbell(struct rs_port *port, u16 destid, u16 info)
{
	struct rs_link_request head = { .kind = RS_LINK_DOORBELL, .destid = destid, .info = info };
	struct request *request = new_request(&head, GFP_ATOMIC);
	int error;

	if (!request)
		return -EAGAIN;
	error = add_request(port->link, request);
	if (error)
		put_request(request);
	return error;
}

/* With data of its own, of so many bytes; `from` is copied into it, or it is copied to `to`. */
static int exchange(struct rs_port *port, const struct rs_link_request *head, const void *from,
		    void *to)
{
	struct request *request = new_request(head, GFP_KERNEL);
	int error;

	if (!request)
		return -ENOMEM;
	request->data = kvzalloc(head->bytes, GFP_KERNEL);
	if (!request->data) {
		put_request(request);
		return -ENOMEM;
	}
	if (from)
		memcpy(request->data, from, head->bytes);
	error = add_request(port->link, request);
	if (!error)
		error = wait_for_answer(port->link, request);
	if (!error && to)
		memcpy(to, request->data, head->bytes);
	put_request(request);
	return error;
}

int rs_link_message(struct rs_port *port, u16 destid, int mbox, const void *data, size_t bytes)
{
	struct rs_link_request head = {
		.kind = RS_LINK_MESSAGE, .destid = destid, .info = mbox, .bytes = bytes,
	};

	return exchange(port, &head, data, NULL);
}

int rs_link_read_register(struct rs_port *port, u16 destid, u8 hops, u32 offset, u32 *value)
{
	struct rs_link_request head = {
		.kind = RS_LINK_READ_REGISTER, .destid = destid, .info = hops, .address = offset,
		.bytes = sizeof(*value),
	};

	return exchange(port, &head, NULL, value);
}

int rs_link_write_register(struct rs_port *port, u16 destid, u8 hops, u32 offset, u32 value)
{
	struct rs_link_request head = {
		.kind = RS_LINK_WRITE_REGISTER, .destid = destid, .info = hops, .address = offset,
		.bytes = sizeof(value),
	};

	return exchange(port, &head, &value, NULL);
}

int rs_link_write(struct rs_port *port, u16 destid, u64 address, const void *from, size_t bytes,
		  bool has_response, u8 lane)
{
	struct rs_link_request head = {
		.kind = RS_LINK_WRITE, .destid = destid, .address = address, .bytes = bytes,
		.flags = has_response ? RS_LINK_ANSWERED : 0, .lane = lane,
	};

	return exchange(port, &head, from, NULL);
}

int rs_link_read(struct rs_port *port, u16 destid, u64 address, void *to, size_t bytes, u8 lane)
{
	struct rs_link_request head = {
		.kind = RS_LINK_READ, .destid = destid, .address = address, .bytes = bytes,
		.lane = lane,
	};

	return exchange(port, &head, NULL, to);
}

/* Out of the list of those that are fresh, with a count of the caller's. */
static struct request *take_request(struct rs_link *link, u32 kinds)
{
	struct request *request, *found = NULL;

	spin_lock_irq(&link->lock);
	list_for_each_entry(request, &link->fresh, node) {
		if (!(request->head.kind & kinds))
			continue;
		found = request;
		break;
	}
	if (found && found->head.kind == RS_LINK_DOORBELL) {
		list_del_init(&found->node);
		link->doorbells--;
	} else if (found) {
		kref_get(&found->ref);
		list_move_tail(&found->node, &link->fetched);
	}
	spin_unlock_irq(&link->lock);
	return found;
}

/* The one with that id, out of the list: the caller completes it. */
static struct request *claim_request(struct rs_link *link, u32 id)
{
	struct request *request, *found = NULL;

	spin_lock_irq(&link->lock);
	list_for_each_entry(request, &link->fetched, node) {
		if (request->head.id == id) {
			kref_get(&request->ref);
			list_del_init(&request->node);
			found = request;
			break;
		}
	}
	spin_unlock_irq(&link->lock);
	return found;
}

static bool has_data(const struct rs_link_request *head)
{
	return head->bytes && !(head->kind & (RS_LINK_READ | RS_LINK_READ_REGISTER));
}

static long next(struct rs_link *link, struct rs_link_next __user *argument)
{
	struct rs_link_next next;
	struct request *request;
	long error, left;

	if (copy_from_user(&next, argument, sizeof(next)))
		return -EFAULT;
	if (!next.kinds || next.timeout_ms > MAX_WAIT_MS)
		return -EINVAL;
	left = wait_event_interruptible_timeout(link->arrived,
						(request = take_request(link, next.kinds)),
						msecs_to_jiffies(next.timeout_ms));
	if (left < 0)
		return -EINTR;
	if (!request)
		return -ENODATA;
	error = 0;
	if (copy_to_user(&argument->request, &request->head, sizeof(request->head)) ||
	    (has_data(&request->head) &&
	     copy_to_user(u64_to_user_ptr(next.data), request->data, request->head.bytes)))
		error = -EFAULT;	/* an answer never comes; the file's end ends it */
	put_request(request);
	return error;
}

static long take_answer(struct rs_link *link, const struct rs_link_answer __user *argument)
{
	struct rs_link_answer answer;
	struct request *request;
	long error = 0;
	bool is_read;

	if (copy_from_user(&answer, argument, sizeof(answer)))
		return -EFAULT;
	request = claim_request(link, answer.id);
	if (!request)
		return -ENOENT;
	is_read = !has_data(&request->head);
	if (answer.error < -MAX_ERRNO || answer.error > 0)
		error = -EINVAL;
	else if (!answer.error && is_read && answer.bytes != request->head.bytes)
		error = -EINVAL;
	else if (!answer.error && is_read &&
		 copy_from_user(request->data, u64_to_user_ptr(answer.data), answer.bytes))
		error = -EFAULT;
	request->error = error ? -EIO : answer.error;
	complete(&request->done);
	put_request(request);
	return error;
}

static long take_doorbell(struct rs_port *port, const void __user *argument)
{
	struct rs_link_doorbell bell;

	if (copy_from_user(&bell, argument, sizeof(bell)))
		return -EFAULT;
	return rs_queue_doorbell(port, bell.source, rs_port_destid(port), bell.info);
}

static long take_message(struct rs_port *port, const void __user *argument)
{
	struct rs_link_message message;
	long error;
	void *data;

	if (copy_from_user(&message, argument, sizeof(message)))
		return -EFAULT;
	if (!message.bytes || message.bytes > RIO_MAX_MSG_SIZE || message.mailbox >= RIO_MAX_MBOX)
		return -EINVAL;
	data = memdup_user(u64_to_user_ptr(message.data), message.bytes);
	if (IS_ERR(data))
		return PTR_ERR(data);
	error = rs_queue_letter(port, message.mailbox, data, message.bytes);
	if (error)
		kfree(data);
	return error;
}

static long access_register(struct rs_port *port, void __user *argument)
{
	struct rs_link_register access;

	if (copy_from_user(&access, argument, sizeof(access)))
		return -EFAULT;
	if (access.offset & 3 || access.offset > 0xfffffc)
		return -EINVAL;
	if (access.is_write && access.offset == RIO_DID_CSR)
		return -EPERM;
	if (access.is_write)
		return rs_local_write(port, access.offset, access.value);
	rs_local_read(port, access.offset, &access.value);
	return copy_to_user(argument, &access, sizeof(access)) ? -EFAULT : 0;
}

static long find_window(struct rs_port *port, void __user *argument)
{
	struct rs_link_window window;

	if (copy_from_user(&window, argument, sizeof(window)))
		return -EFAULT;
	if (!rs_find_window(port, &window.address, &window.bytes, &window.number))
		return -ENXIO;
	return copy_to_user(argument, &window, sizeof(window)) ? -EFAULT : 0;
}

static struct rs_link *link_of(struct file *file)
{
	return container_of(file->private_data, struct rs_link, device);
}

static long link_ioctl(struct file *file, unsigned int command, unsigned long value)
{
	void __user *argument = (void __user *)value;
	struct rs_link *link = link_of(file);

	switch (command) {
	case RS_LINK_IOCTL_NEXT:
		return next(link, argument);
	case RS_LINK_IOCTL_ANSWER:
		return take_answer(link, argument);
	case RS_LINK_IOCTL_DOORBELL:
		return take_doorbell(link->port, argument);
	case RS_LINK_IOCTL_MESSAGE:
		return take_message(link->port, argument);
	case RS_LINK_IOCTL_REGISTER:
		return access_register(link->port, argument);
	case RS_LINK_IOCTL_WINDOW:
		return find_window(link->port, argument);
	}
	return -ENOTTY;
}

static int link_mmap(struct file *file, struct vm_area_struct *vma)
{
	return rs_map_window(link_of(file)->port, vma);
}

static int link_open(struct inode *inode, struct file *file)
{
	struct rs_link *link = link_of(file);
	int error = 0;

	spin_lock_irq(&link->lock);
	if (link->is_open)
		error = -EBUSY;
	else
		link->is_open = true;
	spin_unlock_irq(&link->lock);
	return error;
}

static int link_release(struct inode *inode, struct file *file)
{
	struct rs_link *link = link_of(file);
	struct request *request, *following;
	LIST_HEAD(all);

	spin_lock_irq(&link->lock);
	link->is_open = false;
	link->doorbells = 0;
	list_splice_init(&link->fresh, &all);
	list_splice_init(&link->fetched, &all);
	list_for_each_entry_safe(request, following, &all, node) {
		list_del_init(&request->node);
		if (request->head.kind == RS_LINK_DOORBELL)
			put_request(request);
		else
			complete(&request->done);	/* with -ENODEV; it is its waiter's now */
	}
	spin_unlock_irq(&link->lock);
	return 0;
}

static const struct file_operations link_operations = {
	.owner = THIS_MODULE,
	.open = link_open,
	.release = link_release,
	.unlocked_ioctl = link_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.mmap = link_mmap,
};

int rs_link_create(struct rs_port *port)
{
	struct rs_link *link = kzalloc(sizeof(*link), GFP_KERNEL);
	int error;

	if (!link)
		return -ENOMEM;
	link->port = port;
	spin_lock_init(&link->lock);
	init_waitqueue_head(&link->arrived);
	INIT_LIST_HEAD(&link->fresh);
	INIT_LIST_HEAD(&link->fetched);
	snprintf(link->name, sizeof(link->name), "rio_soft_link%u", port->index);
	link->device.minor = MISC_DYNAMIC_MINOR;
	link->device.name = link->name;
	link->device.fops = &link_operations;
	link->device.mode = 0600;
	port->link = link;
	error = misc_register(&link->device);
	if (error) {
		port->link = NULL;
		kfree(link);
	}
	return error;
}

/* Whoever has the device open holds the module: nobody does. */
void rs_link_destroy(struct rs_port *port)
{
	if (!port->link)
		return;
	misc_deregister(&port->link->device);
	kfree(port->link);
	port->link = NULL;
}
