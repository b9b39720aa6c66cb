package adapter

import (
	"context"
	"time"

	"github.com/gorm-fanout/fanout/brokers"
)

// A Type is a type of broker, as configurations name it. An adapter offers its own by a function:
//
//	func Type() adapter.Type {
//		return adapter.Type{Name: "sqs", New: func() adapter.Settings { return new(Settings) }}
//	}
//
// A program that delivers passes it to fanout.WithBrokerType; one that checks configurations, to
// config.WithBrokerTypes. Nothing else has to know of the adapter.
type Type struct {
	// Name is what stands behind "type:". Letters, digits, _ and -, at most 63.
	Name string
	// New makes the settings of one broker with their defaults: a pointer to a struct. Package
	// config decodes the keys of the broker's section into its fields that have a tag, `config:"key"`,
	// with the kinds of value:
	//
	//	string         a text that is not empty; one=a|b allows these words alone
	//	Secret         a text that no message shows
	//	int            a whole number from 1 on; max=9, or min=-9 with it, bound it
	//	bool           true or false; not inverts it
	//	float64        a number from 0 on
	//	time.Duration  a positive duration; min=1s bounds it
	//	[]string       a list of texts; []Secret one of secrets
	//	*int           the same, nil where there is none
	//	struct         a section with keys of its own; a pointer to a struct is nil where there is none
	//
	// as in `config:"partitions,max=100000"`. A key may be one of a section: `config:"replicas.count"`. A key that is not there leaves its field as New has set
	// it. Keys that all brokers have, such as format and retry, are not the adapter's: see config.Broker.
	New func() Settings
}

// Settings are those of one broker. What they point to must not change while the broker is open.
type Settings interface {
	// Check reports what is wrong with the settings, without connecting to a server or reading a file:
	// those are where the relay runs. Package config has checked each value by itself.
	Check(section Section)
	// Open opens the broker of that name. ctx is for opening it and has no further use. It is closed
	// by whoever opened it: a relay closes its own.
	Open(ctx context.Context, name string) (brokers.Broker, error)
}

// A Section is where the settings of a broker come from: an entry of a configuration file, or a value
// made in Go. Problems that are reported name its file, line and key. Keys are those of the tags, with
// dots between those of a section within it: "sasl.username".
type Section interface {
	// Has reports whether a key is there.
	Has(key string) bool
	// Sound reports whether all of the keys are free of problems reported already, so that comparing
	// them makes sense.
	Sound(keys ...string) bool
	// Rejectf reports that the value of a key is wrong. The message, as of fmt.Sprintf, follows the
	// key: "must begin with %s". It must not show a secret.
	Rejectf(key, format string, args ...any)
	// Removef reports that a key should not be there.
	Removef(key, format string, args ...any)
	// Require reports a key that is missing, with an example of its value, and whether it is there.
	Require(key, example string) bool
	// Warnf says that a value works but is perhaps not meant.
	Warnf(key, format string, args ...any)
	// Place says where the broker's destinations are, so that no two brokers write to the same ones.
	Place(place Place)
	// Internal reports whether the broker is the internal one.
	Internal() bool
	// PublishTimeout is what one call of Publish has, 0 where that is not known.
	PublishTimeout() time.Duration
}

// A Place is where the destinations of a broker are. Two brokers at one place are refused, unless they
// name their destinations differently, as both would write to the same ones.
type Place struct {
	// Servers are those that the settings name, any of which says that it is the same place; none where
	// it is not known. See [ServerOf].
	Servers []string
	// Inside is what is chosen there, such as a database or an exchange.
	Inside string
	// Elsewhere says what brokers of the type are distinguished by, for the error: "server or
	// database".
	Elsewhere string
	// Partners is true where several external brokers may have one place; the internal one never
	// shares it.
	Partners bool
}
