package redisstreams_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A hook gets the commands that a client sends, a single one or a pipeline, and sends them on.
type hook func(ctx context.Context, cmds []redis.Cmder, send func(cmds []redis.Cmder) error) error

func (hook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h(ctx, []redis.Cmder{cmd}, func(cmds []redis.Cmder) error { return next(ctx, cmds[0]) })
	}
}

func (h hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h(ctx, cmds, func(cmds []redis.Cmder) error { return next(ctx, cmds) })
	}
}

// greets reports whether a command sets up a connection.
func greets(cmd redis.Cmder) bool {
	return cmd.Name() == "hello" || cmd.Name() == "client" || cmd.Name() == "auth"
}

// counter counts pipelines and commands.
type counter struct{ pipelines, commands int }

func (c *counter) hook() hook {
	return func(_ context.Context, cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		if !greets(cmds[0]) {
			c.commands += len(cmds)
			if len(cmds) > 1 {
				c.pipelines++
			}
		}
		return send(cmds)
	}
}

// names lists commands, a run of the same command once.
type names struct {
	mu   sync.Mutex
	list []string
}

func (n *names) hook() hook {
	return func(_ context.Context, cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		n.mu.Lock()
		for _, cmd := range cmds {
			if name := cmd.Name(); !greets(cmd) && (len(n.list) == 0 || n.list[len(n.list)-1] != name) {
				n.list = append(n.list, name)
			}
		}
		n.mu.Unlock()
		return send(cmds)
	}
}

// take returns the list and begins a new one.
func (n *names) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := strings.Join(n.list, " ")
	n.list = nil
	return list
}

// refusal makes the server refuse messages: it takes arguments off their XADD, on the way to the
// server or to the script. So the error is the server's, and appears inside the transaction or the script.
type refusal struct{ ids sync.Map }

func (r *refusal) hook() hook {
	return func(ctx context.Context, cmds []redis.Cmder, send func([]redis.Cmder) error) error {
		spoilt := make([]redis.Cmder, len(cmds))
		for i, cmd := range cmds {
			var restore func()
			spoilt[i], restore = r.spoil(ctx, cmd)
			defer restore()
		}
		return send(spoilt)
	}
}

// refuse refuses a message until restore is called.
func (r *refusal) refuse(id string) (restore func()) {
	r.ids.Store(id, struct{}{})
	return func() { r.ids.Delete(id) }
}

func (r *refusal) refuses(id any) bool {
	_, refused := r.ids.Load(*id.(*string))
	return refused
}

// spoil returns the command to send instead of cmd; restore copies its answer into cmd.
func (r *refusal) spoil(ctx context.Context, cmd redis.Cmder) (spoilt redis.Cmder, restore func()) {
	switch call := cmd.(type) {
	case *redis.StringCmd: // XADD: behind * come data, the payload, id and the id
		args := call.Args()
		star := slices.Index(args, any("*"))
		if cmd.Name() != "xadd" || star < 0 || !r.refuses(args[star+4]) {
			return cmd, func() {}
		}
		instead := redis.NewStringCmd(ctx, args[:4]...)
		return instead, func() {
			call.SetVal(instead.Val())
			call.SetErr(instead.Err())
		}
	case *redis.StringSliceCmd:
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return cmd, func() {}
		}
		instead := redis.NewStringSliceCmd(ctx, r.spoilScript(call.Args())...)
		return instead, func() {
			call.SetVal(instead.Val())
			call.SetErr(instead.Err())
		}
	default:
		return cmd, func() {}
	}
}

func (r *refusal) spoilScript(whole []any) []any {
	const header = 7 // as xadd.lua documents, behind EVALSHA, the digest, 1 and the stream
	args := slices.Clone(whole[:header])
	for rest := whole[header:]; len(rest) > 0; {
		count := rest[1].(int)
		one := slices.Clone(rest[:2+count])
		if r.refuses(one[5]) { // data, payload, id, <id>
			one = one[:len(one)-1]
			one[1] = count - 1
		}
		args, rest = append(args, one...), rest[2+count:]
	}
	return args
}
