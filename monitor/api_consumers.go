package monitor

import (
	"context"
	"net/http"
	"time"

	"github.com/gorm-fanout/fanout/internal/discreet"
)

// keepBehind is how long is kept how far consumers are behind, whoever asks.
const keepBehind = 20 * time.Second

// consumerAnswer is a [ConsumerStatus].
type consumerAnswer struct {
	Name          string  `json:"name"`
	Broker        string  `json:"broker"`
	Waiting       int64   `json:"waiting"`
	WaitingMore   bool    `json:"waiting_more"`
	BehindSeconds float64 `json:"behind_seconds"`
	Silent        bool    `json:"silent"`
	Error         string  `json:"error,omitempty"`
}

type consumersAnswer struct {
	Consumers []consumerAnswer `json:"consumers"`
}

func (h *Handler) getConsumers(w http.ResponseWriter, q *request) error {
	found := h.behind.get(q.Context(), h.now, func(ctx context.Context) []ConsumerStatus {
		ctx, cancel := context.WithTimeout(ctx, statusTime)
		defer cancel()
		return h.console.Consumers(ctx)
	})
	all := consumersAnswer{Consumers: make([]consumerAnswer, len(found))}
	for i := range found {
		c := &found[i]
		one := consumerAnswer{Name: c.Name, Broker: c.Broker, Waiting: c.Waiting.N, WaitingMore: c.Waiting.More, BehindSeconds: c.Behind.Seconds(), Silent: c.Silent}
		if c.Err != nil {
			one.Error = discreet.Text(c.Err.Error())
		}
		all.Consumers[i] = one
	}
	return answer(w, all)
}
