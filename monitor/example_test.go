package monitor_test

import (
	"fmt"

	"github.com/gorm-fanout/fanout/monitor"
	"github.com/gorm-fanout/fanout/outbox"
)

// What differs from message to message makes no difference.
func ExampleFingerprint() {
	one := monitor.Fingerprint("partner", &outbox.LastError{Class: "retryable", Message: "dial tcp 10.0.0.7:443: timeout after 30s"})
	two := monitor.Fingerprint("partner", &outbox.LastError{Class: "retryable", Message: "dial tcp 10.0.0.8:443: timeout after 12s"})
	three := monitor.Fingerprint("partner", &outbox.LastError{Class: "permanent", Message: "no such topic"})
	fmt.Println(one == two, one == three)
	// Output: true false
}
