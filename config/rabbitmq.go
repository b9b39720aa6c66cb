package config

import "time"

// RabbitMQ is what a broker of type rabbitmq takes beside its URL; package rabbitmq has the options
// of the same names.
type RabbitMQ struct {
	// Exchange that all messages go to, with their destination as the routing key. Default: fanout.
	Exchange string
	// DropUnroutable counts a message as published that no queue is bound for, and that RabbitMQ
	// therefore drops; "unroutable: drop" in the file. Default: such a message waits for a binding.
	DropUnroutable bool
	// Expiration is how long a message may wait in a queue, in whole milliseconds; RabbitMQ then
	// drops or dead-letters it. Default: 0, messages expire when their time to live is over, if they
	// have one, whichever is shorter.
	Expiration time.Duration
}

const defaultExchange = "fanout" // of package rabbitmq, which a test there compares

// The values of the key unroutable.
const (
	unroutableWait = "wait"
	unroutableDrop = "drop"
)

// readRabbitMQ reads the keys of brokers of type rabbitmq, also of others, which then refuse them.
func (o *object) readRabbitMQ(rabbit *RabbitMQ) {
	o.text("exchange", &rabbit.Exchange)
	rabbit.DropUnroutable = o.choice("unroutable", unroutableWait, unroutableDrop) == unroutableDrop
	o.duration("expiration", &rabbit.Expiration, time.Millisecond)
}
