// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loading and unloading: the ports, and how long the module has to stay.
 *
 * A mailbox that is open holds the module.  So does each DMA channel in use, by
 * the DMA engine's own count.  The character device gives no sign when its files
 * are opened and closed, and writes doorbells after a port has gone: it holds the
 * module from the moment when it asks for a port's properties until it is unloaded
 * itself, which it is not while a file or a mapping of it is open.
 */
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "rio_soft.h"

static unsigned int ports = 2;
module_param(ports, uint, 0444);
MODULE_PARM_DESC(ports, "master ports, 2 to 8 (default 2)");

static bool switched;
module_param(switched, bool, 0444);
MODULE_PARM_DESC(switched, "a switch between two ports, too; three and more always have one");

static bool large;
module_param(large, bool, 0444);
MODULE_PARM_DESC(large, "destination ids of 16 bits instead of 8");

static bool linked;
module_param(linked, bool, 0444);
MODULE_PARM_DESC(linked, "links lead to /dev/rio_soft_linkN instead of to each other; then one port is enough");

struct rs_port *rs_ports[RS_MAX_PORTS];
unsigned int rs_port_count;
bool rs_has_switch;
bool rs_has_large_ids;
bool rs_is_linked;

static const char *const counter_names[RS_COUNTERS] = {
	[RS_UNHEARD_DOORBELLS] = "unheard_doorbells",
	[RS_REFUSED_DOORBELLS] = "refused_doorbells",
	[RS_LOST_PORTWRITES] = "lost_portwrites",
	[RS_LOST_MESSAGES] = "lost_messages",
	[RS_LOST_PACKETS] = "lost_packets",
};

static DEFINE_MUTEX(pin_mutex);	/* is_pinned of all ports */

void rs_pin(struct rs_port *port)
{
	mutex_lock(&pin_mutex);
	if (!port->is_pinned)
		__module_get(THIS_MODULE);
	port->is_pinned = true;
	mutex_unlock(&pin_mutex);
}

static int module_event(struct notifier_block *block, unsigned long state, void *data)
{
	const struct module *module = data;
	unsigned int i;

	if (state != MODULE_STATE_GOING || strcmp(module->name, "rio_mport_cdev"))
		return NOTIFY_DONE;
	mutex_lock(&pin_mutex);
	for (i = 0; i < rs_port_count; i++) {
		if (rs_ports[i]->is_pinned)
			module_put(THIS_MODULE);
		rs_ports[i]->is_pinned = false;
	}
	mutex_unlock(&pin_mutex);
	return NOTIFY_OK;
}

static struct notifier_block module_notifier = { .notifier_call = module_event };

static ssize_t counters_show(struct device *device, struct device_attribute *attribute, char *text)
{
	struct rs_port *port = dev_get_drvdata(device);
	ssize_t length = 0;
	unsigned int i;

	for (i = 0; i < RS_COUNTERS; i++)
		length += sysfs_emit_at(text, length, "%s %lld\n", counter_names[i],
					atomic64_read(&port->counters[i]));
	return length + sysfs_emit_at(text, length, "memory_blocks %d\n",
				      atomic_read(&port->blocks));
}
static DEVICE_ATTR_RO(counters);

/* "DESTID COMPONENT_TAG [WORD]..." sends a port-write, as a device does that has seen an error. */
static ssize_t portwrite_store(struct device *device, struct device_attribute *attribute,
			       const char *text, size_t length)
{
	struct rs_port *port = dev_get_drvdata(device);
	union rio_pw_msg message = {};
	unsigned int destid, count = 0;
	int used, error;

	if (sscanf(text, "%i%n", &destid, &used) != 1 || destid > 0xffff)
		return -EINVAL;
	for (text += used; count < ARRAY_SIZE(message.raw); text += used, count++) {
		if (sscanf(text, "%i%n", &message.raw[count], &used) != 1)
			break;
	}
	if (count == 0)
		return -EINVAL;
	error = rs_send_portwrite(port, destid, &message);
	if (error)
		return error;
	return length;
}
static DEVICE_ATTR_WO(portwrite);

static struct attribute *port_attrs[] = {
	&dev_attr_counters.attr,
	&dev_attr_portwrite.attr,
	NULL
};
ATTRIBUTE_GROUPS(port);

static int port_probe(struct platform_device *device)
{
	struct rs_port *port = rs_ports[device->id];

	port->device = device;
	platform_set_drvdata(device, port);
	return rs_port_create(port);
}

static int port_remove(struct platform_device *device)
{
	rs_port_destroy(platform_get_drvdata(device));
	return 0;
}

static struct platform_driver port_driver = {
	.probe = port_probe,
	.remove = port_remove,
	.driver = {
		.name = "rio_soft",
		.dev_groups = port_groups,
		.suppress_bind_attrs = true,
	},
};

static struct platform_device *devices[RS_MAX_PORTS];

static void remove_devices(void)
{
	unsigned int i;

	for (i = rs_port_count; i-- > 0;) {
		if (devices[i])
			platform_device_unregister(devices[i]);
		devices[i] = NULL;
	}
}

static void free_ports(void)
{
	unsigned int i;

	for (i = 0; i < rs_port_count; i++)
		kfree(rs_ports[i]);
	rs_port_count = 0;
}

static int __init rio_soft_init(void)
{
	struct platform_device *device;
	unsigned int i;
	int error;

	if (ports < (linked ? 1 : 2) || ports > RS_MAX_PORTS) {
		pr_err("rio_soft: ports=%u: from %d to %d\n", ports, linked ? 1 : 2, RS_MAX_PORTS);
		return -EINVAL;
	}
	if (linked && switched) {
		pr_err("rio_soft: linked: there is nothing to switch between\n");
		return -EINVAL;
	}
	rs_is_linked = linked;
	rs_has_switch = !linked && (switched || ports > 2);
	rs_has_large_ids = large;
	error = rs_registers_init();
	if (error)
		return error;
	for (i = 0; i < ports; i++) {
		rs_ports[i] = kzalloc(sizeof(*rs_ports[i]), GFP_KERNEL);
		if (!rs_ports[i]) {
			error = -ENOMEM;
			goto free;
		}
		rs_ports[i]->index = i;
		rs_registers_reset(rs_ports[i]);
		rs_port_count = i + 1;
	}
	error = register_module_notifier(&module_notifier);
	if (error)
		goto free;
	error = platform_driver_register(&port_driver);
	if (error)
		goto unregister_notifier;
	for (i = 0; i < ports; i++) {
		device = platform_device_register_simple("rio_soft", i, NULL, 0);
		if (IS_ERR(device)) {
			error = PTR_ERR(device);
			goto remove;
		}
		devices[i] = device;
		if (!device->dev.driver) {	/* the core has no number left, or no memory */
			error = -ENODEV;
			goto remove;
		}
	}
	return 0;

remove:
	remove_devices();
	platform_driver_unregister(&port_driver);
unregister_notifier:
	unregister_module_notifier(&module_notifier);
free:
	free_ports();
	rs_registers_exit();
	return error;
}

static void __exit rio_soft_exit(void)
{
	remove_devices();
	platform_driver_unregister(&port_driver);
	unregister_module_notifier(&module_notifier);
	free_ports();
	rs_registers_exit();
}

module_init(rio_soft_init);
module_exit(rio_soft_exit);

MODULE_DESCRIPTION("RapidIO master ports in software");
MODULE_AUTHOR("The Incast authors");
MODULE_LICENSE("GPL");
