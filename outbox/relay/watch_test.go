package relay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/gorm-fanout/fanout/outbox/admin"
)

// tower is a store that is only looked at.
type tower struct {
	lobby

	mu    sync.Mutex
	found []admin.Finding
	fail  error
}

func (w *tower) Watch(ctx context.Context) ([]admin.Finding, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]admin.Finding{}, w.found...), errors.Join(w.fail, ctx.Err())
}

func (w *tower) set(fail error, problems ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail, w.found = fail, nil
	for _, problem := range problems {
		w.found = append(w.found, admin.Finding{Topic: "vacuum", Message: problem})
	}
}

// What slows down a database is notified of at the start and within minutes, once while it lasts, and
// when it is over.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &tower{}
		w.set(nil, "first")
		log, stop := startEngine(t, w, 0, "")
		synctest.Wait()
		said := func(problem string) [2]int {
			synctest.Wait()
			return [2]int{
				log.count(`msg="database problem" database=db topic=vacuum problem=` + problem),
				log.count(`msg="database problem over" database=db topic=vacuum problem=` + problem),
			}
		}
		assert.Equal(t, [2]int{1, 0}, said("first"), "at the start")
		w.set(nil, "first", "second")
		time.Sleep(watchEvery - time.Second)
		assert.Equal(t, [2]int{0, 0}, said("second"))
		time.Sleep(time.Second)
		assert.Equal(t, [2]int{1, 0}, said("second"))
		w.set(errors.New("down"))
		time.Sleep(2 * watchEvery)
		assert.Equal(t, [2]int{1, 0}, said("first"), "once; and not known is not over")
		w.set(nil, "second")
		time.Sleep(watchEvery)
		assert.Equal(t, [2]int{1, 1}, said("first"))
		w.set(nil, "first", "second")
		time.Sleep(watchEvery)
		assert.Equal(t, [2]int{2, 1}, said("first"), "again, since it was over")
		assert.Equal(t, [2]int{1, 0}, said("second"))
		stop()
	})
}
