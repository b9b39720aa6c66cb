package gormplugins_test

import (
	"context"
	"encoding/json"
	"reflect"
	"sync"
	"testing"

	"github.com/go-gorm/caches/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/gen"
	"gorm.io/gen/field"
	"gorm.io/gorm"
	"gorm.io/plugin/prometheus"

	"github.com/gorm-fanout/fanout/uow"
)

// The statistics of the pool come through the plugin's.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	inEitherOrder(cases, "statistics", gorm.Config{}, func(*bench) gorm.Plugin { return prometheus.New(prometheus.Config{DBName: "shop"}) }, func(b *bench, db *gorm.DB) {
		b.scenario(db)
		pool, err := db.DB()
		b.ok(err)
		assert.Positive(b.t, pool.Stats().OpenConnections)
	})
	runCases(t, cases)
}

// orders is what GORM's generator makes for a model: a type around its data access object.
type orders struct{ gen.DO }

func ordersOf(db *gorm.DB) *orders {
	o := &orders{}
	o.UseDB(db)
	o.UseModel(&Order{})
	return o
}

func TestGen(t *testing.T) {
	t.Parallel()
	runCases(t, map[string]func(b *bench){
		"generated code": func(b *bench) {
			db := b.open(&gorm.Config{})
			b.use(db)
			o := order("1", "a")
			b.ok(ordersOf(db).Create(o))
			raising(o, "b").Status = "paid"
			b.ok(ordersOf(db).Save(o))
			b.ok(db.Transaction(func(tx *gorm.DB) error {
				_, err := ordersOf(tx).Where(field.NewString("", "id").Eq("1")).Updates(raising(o, "c"))
				raising(o, "late")
				return err
			}))
			require.ErrorIs(b.t, db.Transaction(func(tx *gorm.DB) error {
				b.ok(ordersOf(tx).Create(order("2", "refused")))
				return errRefused
			}), errRefused)
			_, err := ordersOf(db).Delete([]*Order{raising(o, "d")})
			b.ok(err)
			b.want("1: a", "1: b", "1: c", "1: late", "1: d")
		},
	})
}

// cacher is a cache of answers in the process: values, as one of JSON keeps, or the very pointers.
type cacher struct {
	values bool

	mu    sync.Mutex
	texts map[string][]byte
	kept  map[string]*caches.Query[any]
}

func (c *cacher) Get(_ context.Context, key string, q *caches.Query[any]) (*caches.Query[any], error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values {
		text, ok := c.texts[key]
		if !ok {
			return nil, nil //nolint:nilnil // it is not there
		}
		return q, json.Unmarshal(text, q)
	}
	kept := c.kept[key]
	if kept == nil {
		return nil, nil //nolint:nilnil // it is not there
	}
	copied := reflect.New(reflect.TypeOf(kept.Dest).Elem())
	copied.Elem().Set(reflect.ValueOf(kept.Dest).Elem())
	return &caches.Query[any]{Dest: copied.Interface(), RowsAffected: kept.RowsAffected}, nil
}

func (c *cacher) Store(_ context.Context, key string, q *caches.Query[any]) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values {
		c.texts[key], err = json.Marshal(q)
		return err
	}
	c.kept[key] = q
	return nil
}

func (c *cacher) Invalidate(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts, c.kept = map[string][]byte{}, map[string]*caches.Query[any]{}
	return nil
}

// What two requests have from a cache are aggregates of their own.
func TestCaches(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bench){}
	for name, values := range map[string]bool{"a cache of texts": true, "a cache of structs": false} {
		plugin := func(*bench) gorm.Plugin {
			return &caches.Caches{Conf: &caches.Config{Easer: true, Cacher: &cacher{values: values, texts: map[string][]byte{}, kept: map[string]*caches.Query[any]{}}}}
		}
		inEitherOrder(cases, name, gorm.Config{}, plugin, func(b *bench, db *gorm.DB) {
			b.ok(db.Create(order("1")).Error)
			load := func(db *gorm.DB) *Order {
				o := &Order{}
				b.ok(db.First(o, "id = ?", "1").Error)
				return o
			}
			load(db) // into the cache
			require.ErrorIs(b.t, db.Transaction(func(tx *gorm.DB) error {
				raising(load(tx), "refused")
				return errRefused
			}), errRefused)
			b.ok(db.Transaction(func(tx *gorm.DB) error { return tx.Save(raising(load(tx), "a")).Error }))
			b.want("1: a")
			assert.Empty(b.t, uow.Pending(load(db)))
		})
	}
	runCases(t, cases)
}
