package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"gorm.io/gorm"

	"github.com/gorm-fanout/fanout/config"
	"github.com/gorm-fanout/fanout/inbox"
	"github.com/gorm-fanout/fanout/monitor"
)

// consumers are the inboxes that the configuration names, by the consumers' names.
type consumers map[string]*consumer

// consumer is one of them. Its database is opened when it is first asked for.
type consumer struct {
	config.Consumer

	name string

	mu sync.Mutex
	db *gorm.DB
}

func openConsumers(cfg *config.Config) consumers {
	all := make(consumers, len(cfg.Consumers))
	for name, c := range cfg.Consumers {
		c.Broker = cmp.Or(c.Broker, cfg.BrokerNames()[0])
		all[name] = &consumer{Consumer: c, name: name}
	}
	return all
}

// known is what a console is told.
func (c consumers) known() map[string]monitor.Consumer {
	all := make(map[string]monitor.Consumer, len(c))
	for name, one := range c {
		all[name] = monitor.Consumer{Broker: one.Broker, Progress: one.progress, Types: one.types}
	}
	return all
}

func (c consumers) close() {
	for _, one := range c {
		one.mu.Lock()
		if one.db != nil {
			if pool, err := one.db.DB(); err == nil {
				_ = pool.Close() // nothing was written
			}
			one.db = nil
		}
		one.mu.Unlock()
	}
}

// open connects once.
func (c *consumer) open() (*gorm.DB, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != nil {
		return c.db, nil
	}
	if c.DSN.Reveal() == "" {
		return nil, fmt.Errorf("consumers.%s.dsn is empty: is its environment variable set?", c.name)
	}
	db, err := openHandle(config.Database{Driver: c.Driver, DSN: c.DSN})
	if err != nil { // which may repeat the password
		return nil, errors.New("its database cannot be opened: see consumers." + c.name + " in the configuration")
	}
	c.db = db
	return db, nil
}

// progress is how far the consumer is with messages.
func (c *consumer) progress(ctx context.Context, messages []uuid.UUID, sources []string) (map[uuid.UUID][]monitor.ConsumerProgress, error) {
	db, err := c.open()
	if err != nil {
		return nil, err
	}
	const atOnce, mostSources = 1000, 20 // of inbox.WhatBecame
	all := make(map[uuid.UUID][]monitor.ConsumerProgress, len(messages))
	for some := range slices.Chunk(messages, atOnce) {
		found, err := inbox.WhatBecame(ctx, db, c.name, some, sources[:min(len(sources), mostSources)], c.options()...)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			all[p.Key] = append(all[p.Key], monitor.ConsumerProgress{Source: p.Source, Status: p.Status, Attempts: p.Attempts, At: p.At, LastError: p.LastError.Message})
		}
	}
	return all, nil
}

// types are those of what the consumer has handled.
func (c *consumer) types(ctx context.Context) ([]string, error) {
	db, err := c.open()
	if err != nil {
		return nil, err
	}
	return inbox.HandledTypes(ctx, db, c.name, c.options()...)
}

func (c *consumer) options() (options []inbox.Option) {
	if c.Table != "" {
		options = append(options, inbox.WithTable(c.Table))
	}
	return options
}
