// Package redisreply says what the error replies of Redis mean, for the broker and the consumer. It
// knows Redis 5 to 8 and Valkey, and servers behind proxies that speak like them.
package redisreply

import (
	"errors"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// About is what an error reply is about.
type About int

// What a reply can be about.
const (
	Server  About = iota // the server that has answered, whatever it is asked
	Key                  // a stream, or where it is
	Command              // a command that the server, or a proxy, does not know
)

// A Meaning is what is known of a reply.
type Meaning struct {
	// Prefix is how the reply begins, in whole words.
	Prefix string
	About  About
	// Settled replies do not pass by themselves.
	Settled bool
	// Advice is what to do; empty where the user lacks rights, which depend on who asks.
	Advice string
}

var meanings = []Meaning{
	{"OOM", Server, false, "raise maxmemory, or trim streams"},
	{"READONLY", Server, false, "this is a replica; connect to the primary, by Sentinel where there is a failover"},
	{"ERR WAIT cannot be used with replica", Server, false, "connect to the primary, by Sentinel where there is a failover"},
	{"LOADING", Server, false, "the server is starting; this passes by itself"},
	{"MASTERDOWN", Server, false, "the replica has lost its primary; connect to the primary"},
	{"CLUSTERDOWN", Server, false, "check CLUSTER INFO"},
	{"MISCONF", Server, false, "the server cannot save to disk; see its log"},
	{"NOREPLICAS", Server, false, "too few replicas are connected (min-replicas-to-write)"},
	{"BUSY", Server, false, "another script runs too long; SCRIPT KILL ends it"},
	{"ERR max number of clients", Server, false, "raise maxclients, or lower the pool sizes of clients"},
	{"NOAUTH", Server, true, "the client needs a user and a password"},
	{"ERR Protocol error: unauthenticated", Server, true, "the client needs a user and a password"}, // before NOAUTH
	{"WRONGPASS", Server, true, "check user and password"},
	{"ERR AUTH", Server, true, "check user and password"},             // a password where none is configured
	{"ERR invalid password", Server, true, "check user and password"}, // up to Redis 5
	{"ERR DB index", Server, true, "check the number of the database"},
	{"ERR unknown command", Command, true, unknown},
	{"ERR Unknown Redis command", Command, true, unknown}, // within a script
	{"ERR unknown subcommand", Command, true, unknown},
	{"NOPERM", Key, true, ""},
	{"ERR The user executing the script", Key, true, ""}, // Redis 7, within a script
	{"WRONGTYPE", Key, true, "the key holds something else than a stream: rename the stream or the key"},
	{"CROSSSLOT", Key, true, cluster},
	{"MOVED", Key, false, cluster},
	{"ASK", Key, false, cluster},
	{"TRYAGAIN", Key, false, "slots are being moved; this passes by itself"},
	{"UNBLOCKED", Key, false, "the stream was deleted, or moved to another node"},
	{"NOGROUP", Key, false, "the stream or its group was deleted, by DEL, FLUSHALL or XGROUP DESTROY"},
}

const (
	cluster = "the server is a node of a cluster; use a cluster client (which sees this only while slots move)"
	unknown = "the server, or a proxy before it, does not know it: use Redis 6.2 or later, and a proxy that knows streams and scripts; AUTH is needed where there is a password"
)

// Meanings lists what is known.
func Meanings() []Meaning { return meanings }

// wrapper is what servers put around an error inside a script, such as "@user_script: 25: -OOM
// command not allowed ...".
var wrapper = regexp.MustCompile(`^(ERR Error running script \(call to f_[0-9a-f]+\): )?@user_script: ?\d+: `)

// discarded is what EXEC puts in front of an error because of which it executes nothing.
const discarded = "EXECABORT Transaction discarded because of: "

// Bare is a reply without what a script or a transaction puts around it.
func Bare(text string) string {
	return strings.TrimPrefix(wrapper.ReplaceAllString(strings.TrimPrefix(text, discarded), ""), "-")
}

// Text is the bare text of an error of the server. ok is false where none has answered.
func Text(err error) (text string, ok bool) {
	var answer redis.Error
	if !errors.As(err, &answer) || errors.Is(err, redis.Nil) {
		return "", false
	}
	return Bare(answer.Error()), true
}

// Find says what a bare text means.
func Find(text string) (Meaning, bool) {
	for _, m := range meanings {
		if text == m.Prefix || strings.HasPrefix(text, m.Prefix+" ") {
			return m, true
		}
	}
	return Meaning{}, false
}

// Of says what an error of the server means.
func Of(err error) (Meaning, bool) {
	text, ok := Text(err)
	if !ok {
		return Meaning{}, false
	}
	return Find(text)
}
