package testservers

import (
	"fmt"
	"os/user"
	"strconv"
)

// account is a user that server processes run as. The nil account is the one we run as ourselves.
type account struct{ uid, gid uint32 }

// unprivileged returns the account for a server that refuses to run as root: the user postgres,
// else "nobody". It returns nil, our own account, when we are not root.
func unprivileged(uid int) (*account, error) {
	if uid != 0 {
		return nil, nil //nolint:nilnil // the nil account is documented to be our own
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return &account{uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("testservers: PostgreSQL refuses to run as root, and there is neither a user 'postgres' nor 'nobody';"+
		" run the tests as another user, or set %s", PostgresVariable)
}
