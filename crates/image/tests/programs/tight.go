// Collects garbage again and again beside a loop without a call, which the runtime can only stop by
// a signal to its thread: it must know the thread's number.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
)

func main() {
	rounds := 300
	if len(os.Args) > 1 {
		rounds, _ = strconv.Atoi(os.Args[1])
	}
	runtime.GOMAXPROCS(3)
	var over atomic.Bool
	done := make(chan uint64, 2)
	for range 2 {
		go func() {
			x := uint64(1)
			for !over.Load() {
				x = x*6364136223846793005 + 1
			}
			done <- x
		}()
	}
	wrong := 0
	var keep [16][]byte
	for i := range rounds {
		keep[i%16] = make([]byte, 4096+i)
		keep[i%16][i%4096] = byte(i)
		runtime.GC()
		if i > 0 && keep[(i-1)%16][(i-1)%4096] != byte(i-1) {
			wrong++
		}
	}
	over.Store(true)
	<-done
	<-done
	text := fmt.Sprintf("%d rounds %d wrong\n", rounds, wrong)
	if os.WriteFile("out", []byte(text), 0o600) != nil {
		os.Exit(1)
	}
}
