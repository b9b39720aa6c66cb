package driver

import "context"

// A Poller is a store that answers in one statement whether [Delivery.Ready] would find work of any of
// some brokers.
type Poller interface {
	AnyReady(ctx context.Context, brokers []string) (bool, error)
}

// AnyReady reports whether a store has work for a relay with these brokers. A broker that is paused has
// none. It asks as few questions as the store allows.
func AnyReady(ctx context.Context, store Delivery, brokers []string) (bool, error) {
	if poller, ok := store.(Poller); ok {
		return poller.AnyReady(ctx, brokers)
	}
	for _, broker := range brokers {
		ready, err := store.Ready(ctx, broker, 0)
		if err != nil || len(ready.Shards) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}
