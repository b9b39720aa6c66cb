package gcppubsub

import (
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// WithEmulator connects to an emulator at an address such as "localhost:8085": without TLS and without credentials, as
// PUBSUB_EMULATOR_HOST does for the whole process.
func WithEmulator(address string) Option {
	return func(o *options) {
		o.client = append(o.client, option.WithEndpoint(address), option.WithoutAuthentication(),
			option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
}
