"""PyTorch's side of bench/peers: a network with SGD and momentum, the whole training loop.

Variants: eager (channels_last, fused SGD), compile (gather, forward, backward and update in one
compiled graph; where a network has batch statistics: forward and backward compiled, the update
fused), compile-autotune (the same with mode="max-autotune"), graph (the eager step, gather included,
captured by hand in one CUDA graph; GPU only), ddp (eager under torchrun, one process per core:
DistributedDataParallel over Gloo; rank 0 answers).
"""

import sys

import common

args = common.options()
LEARNING_RATE = common.LEARNING_RATE[args.net]
common.set_threads(args)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

from torch_models import MODELS  # noqa: E402

on_gpu = args.device == "cuda"
if on_gpu:
    torch.backends.cuda.matmul.allow_tf32 = args.type == "tf32"
    torch.backends.cudnn.allow_tf32 = args.type == "tf32"
    torch.backends.cudnn.benchmark = True
else:
    torch.set_num_threads(args.threads)
torch.manual_seed(1)


model = MODELS[args.net]()
model.load_state_dict(load_file(args.weights))
model = model.to(device=args.device, memory_format=torch.channels_last)
starting_weights = {name: value.clone() for name, value in model.state_dict().items()}

images, labels = (torch.from_numpy(x).to(args.device) for x in common.training_data(args.net, args.data))
images = images.contiguous(memory_format=torch.channels_last)
if args.type == "bf16":
    images = images.to(torch.bfloat16)


MODE = "max-autotune" if args.variant == "compile-autotune" else "default"


def cast():
    """Mixed precision around the forward pass. Copies of the weights are made anew in each step."""
    return torch.autocast(
        args.device, torch.bfloat16, enabled=args.type == "bf16", cache_enabled=False
    )


class EagerStep:
    def __init__(self, forward=model):
        self.forward = forward
        self.optimizer = torch.optim.SGD(
            model.parameters(), lr=LEARNING_RATE, momentum=common.MOMENTUM, fused=True
        )

    def __call__(self, index):
        with cast():
            loss = F.cross_entropy(self.forward(images[index]), labels[index])
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def restart(self):
        model.load_state_dict(starting_weights)
        for state in self.optimizer.state.values():
            if state.get("momentum_buffer") is not None:
                state["momentum_buffer"].zero_()


class CompiledStep:
    """Of a network without buffers, which a functional call cannot update."""

    def __init__(self):
        names = [name for name, _ in model.named_parameters()]
        self.params = [p.detach().clone() for _, p in model.named_parameters()]
        self.momenta = [torch.zeros_like(p) for p in self.params]
        if (
            on_gpu
        ):  # So that the compiler may put the whole step, in-place updates included, in a graph.
            for tensor in (*self.params, *self.momenta, images, labels):
                torch._dynamo.mark_static_address(tensor)

        def loss_of(params, x, y):
            with cast():
                logits = torch.func.functional_call(model, dict(zip(names, params)), (x,))
                return F.cross_entropy(logits, y)

        def plain_step(params, momenta, images, labels, index):
            x, y = images[index], labels[index]
            grads, loss = torch.func.grad_and_value(loss_of)(params, x, y)
            for p, m, g in zip(params, momenta, grads):
                m.mul_(common.MOMENTUM).add_(g)
                p.sub_(LEARNING_RATE * m)
            return loss

        self.compiled = torch.compile(plain_step, mode=MODE, fullgraph=True, dynamic=False)

    def __call__(self, index):
        with torch.no_grad():
            return self.compiled(self.params, self.momenta, images, labels, index)

    def restart(self):
        for p, start in zip(self.params, starting_weights.values()):
            p.copy_(start)
        for m in self.momenta:
            m.zero_()


class GraphStep:
    """One replay is one step: the graph takes the next samples of the order by itself."""

    def __init__(self):
        self.eager = EagerStep()
        self.offsets = torch.arange(args.batch, device="cuda")
        self.position = torch.zeros((), dtype=torch.int64, device="cuda")
        self.order = torch.arange(len(images), device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):  # Libraries choose their algorithms, momentum gets its buffers.
                self._step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        self.eager.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.loss = self._step()

    def _step(self):
        loss = self.eager(self.order[self.position + self.offsets])
        self.position += args.batch
        return loss

    def new_order(self, order):
        self.order.copy_(order)
        self.position.zero_()

    def __call__(self, index):
        self.graph.replay()
        return self.loss

    def restart(self):
        self.eager.restart()


class DdpStep(EagerStep):
    """This process' part of each batch, which all divide evenly; the mean of the means is the mean."""

    def __init__(self):
        parallel = torch.nn.parallel.DistributedDataParallel
        super().__init__(parallel(model, gradient_as_bucket_view=True, static_graph=True))
        self.part = slice(dist.get_rank(), None, dist.get_world_size())

    def __call__(self, index):
        return super().__call__(index[self.part])


if args.variant == "ddp":
    import torch.distributed as dist

    dist.init_process_group("gloo")
    step = DdpStep()
elif args.variant == "graph":
    step = GraphStep()
elif args.variant in ("", "eager"):
    step = EagerStep()
elif list(model.buffers()):
    step = EagerStep(torch.compile(model, mode=MODE, fullgraph=True, dynamic=False))
else:
    step = CompiledStep()


class Order:
    """Batches of a fresh random order each epoch, or of the order of the files."""

    def __init__(self):
        self.restart(shuffle=True)

    def restart(self, shuffle):
        self.shuffle = shuffle
        self.position = len(images)

    def next(self):
        if self.position + args.batch > len(images):
            make = torch.randperm if self.shuffle else torch.arange
            self.order = make(len(images), device=args.device)
            self.position = 0
            if args.variant == "graph":
                step.new_order(self.order)
        index = self.order[self.position : self.position + args.batch]
        self.position += args.batch
        return index


order = Order()


def run(steps):
    for _ in range(steps):
        step(order.next())
    if on_gpu:
        torch.cuda.synchronize()


def losses(steps):
    step(order.next())  # What the first step makes is made; then all starts anew.
    step.restart()
    order.restart(shuffle=False)
    result = [step(order.next()).clone() for _ in range(steps)]
    order.restart(shuffle=True)
    return result


def memory():
    return torch.cuda.max_memory_reserved() if on_gpu else None


def losses_of_all(steps):
    own = torch.tensor([float(loss) for loss in losses(steps)])
    dist.all_reduce(own)
    return (own / dist.get_world_size()).tolist()


RUN, LOSSES, END = range(3)


def together(what, steps):
    """Rank 0 has the others do the same."""
    dist.broadcast(torch.tensor([what, steps]), 0)
    return (run, losses_of_all)[what](steps)


if args.variant != "ddp":
    common.serve(run, losses, memory)
elif dist.get_rank() == 0:
    common.serve(lambda steps: together(RUN, steps), lambda steps: together(LOSSES, steps), memory)
    dist.broadcast(torch.tensor([END, 0]), 0)
else:
    sys.stdin.close()
    while True:
        order_of_rank_0 = torch.zeros(2, dtype=torch.int64)
        dist.broadcast(order_of_rank_0, 0)
        what, steps = order_of_rank_0.tolist()
        if what == END:
            break
        (run, losses_of_all)[what](steps)
