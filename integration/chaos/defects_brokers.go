//go:build unix

package chaos

import (
	"time"

	"github.com/gorm-fanout/fanout/integration/chaos/scenario"
)

// brokerDefects are those of the brokers and consumers of RabbitMQ, NATS and Kafka.
func brokerDefects() []Defect {
	return []Defect{
		{
			Name: "counts-sent", What: "the brokers of RabbitMQ and NATS count what they have sent as published, whatever becomes of it", Rules: []Rule{Lost, Unconfirmed},
			At: []string{scenario.RabbitMQ, scenario.NATS}, brokers: []string{scenario.RabbitMQ, scenario.NATS},
			edits: []edit{
				{
					"brokers/rabbitmq/outcome.go", "\t\tp.cannot(ctx, why)\n\t\treturn false\n\t}\n\tfor _, m := range flight {\n\t\tp.Fail(m.index, err)\n",
					"\t\tp.cannot(ctx, why)\n\t\treturn false\n\t}\n\tfor _, m := range flight {\n\t\tp.Confirm(m.index, \"\")\n",
				},
				{
					"brokers/nats/publish.go", "\t<-p.slots\n\tp.Fail(f.i, p.failed(ctx, f.lane.subject, err))\n}\n\n// A message",
					"\t<-p.slots\n\tp.Confirm(f.i, \"\")\n}\n\n// A message",
				},
			},
			options: func(o *Options) { // messages that are long on their way when the server dies
				o.Only, o.Every, o.Slow = []Kind{RabbitMQKill, NATSKill}, 2*time.Second, 120*time.Millisecond
			},
		},
		{
			Name: "counts-sent-kafka", What: "the broker of Kafka counts what it has sent as published, whatever becomes of it", Rules: []Rule{Lost, Unconfirmed},
			At: []string{scenario.Kafka}, brokers: []string{scenario.Kafka},
			edits: []edit{{
				"brokers/kafka/publish.go", "\t\tdefault:\n\t\t\tp.settle(ctx, it, it.err, repeated)\n",
				"\t\tdefault:\n\t\t\t_ = repeated\n\t\t\tp.Confirm(it.index, \"\")\n",
			}},
			options: func(o *Options) { o.Only, o.Every = []Kind{KafkaQuorum, KafkaKill}, 2*time.Second },
		},
		{
			Name: "acks-first", What: "consumers of RabbitMQ and NATS confirm a message at the broker before it is handled", Rules: []Rule{Projection},
			At: []string{scenario.RabbitMQ, scenario.NATS}, brokers: []string{scenario.RabbitMQ, scenario.NATS},
			edits: []edit{
				{
					"inbox/consumer/work.go", "\ta := runner.Attempt(ctx, e.Message, e.Past)\n",
					"\tif e.Past.Failures == 0 {\n\t\te.First().Ack()\n\t}\n\ta := runner.Attempt(ctx, e.Message, e.Past)\n",
				},
				{"inbox/consumer/work.go", "\t\tfor _, d := range copies {\n\t\t\td.Ack()\n\t\t}\n\t\ts.letGo(e)\n", "\t\t_ = copies\n\t\ts.letGo(e)\n"},
			},
			// One projector, which has the worst of it, and a backlog: after a kill, the consumer of NATS waits
			// for longer than its AckWait, and has nothing in progress then.
			options: func(o *Options) {
				o.Only, o.For, o.Every, o.Rate, o.Producers, o.Relays, o.Projectors = []Kind{Kill, Delay}, 40*time.Second, 600*time.Millisecond, 100, 1, 1, 1
			},
		},
		{
			Name: "keys-beside", What: "consumers of RabbitMQ and NATS handle the messages of a key beside each other", Rules: []Rule{Disorder},
			At: []string{scenario.RabbitMQ, scenario.NATS}, brokers: []string{scenario.RabbitMQ, scenario.NATS},
			edits:   []edit{{"inbox/consumer/queues.go", "case key != \"\":\n", "case key == \"none\":\n"}},
			options: func(o *Options) { o.Only, o.Keys = []Kind{Stop, Delay}, 6 },
		},
		{
			Name: "overtakes-lost", What: "the exclusive consumer of a durable of JetStream does not wait for what was delivered and has not arrived", Rules: []Rule{Disorder},
			At: []string{scenario.NATS}, brokers: []string{scenario.NATS},
			edits: []edit{{"brokers/nats/natsconsumer/receive.go", "order: order{kept: c.config.Exclusive, doubtful: c.config.Exclusive}", "order: order{}"}},
			options: func(o *Options) {
				o.Only, o.Every, o.Keys, o.Rate, o.Relays, o.Projectors = []Kind{Kill, Delay}, 300*time.Millisecond, 6, 60, 1, 1
			},
		},
	}
}
