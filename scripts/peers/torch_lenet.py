"""PyTorch's side of bench-peers: LeNet with SGD and momentum, the whole training loop.

Variants: eager (channels_last, fused SGD), compile (forward, backward and update in one compiled
graph), compile-autotune (the same with mode="max-autotune").
"""

import common

args = common.options()
common.set_threads(args.threads)

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import nn  # noqa: E402

torch.set_num_threads(args.threads)
torch.manual_seed(1)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


model = LeNet()
if args.weights:
    model.load_state_dict(load_file(args.weights))
if args.save_weights:
    save_file(model.state_dict(), args.save_weights)
    raise SystemExit
model = model.to(memory_format=torch.channels_last)

images, labels = (torch.from_numpy(x) for x in common.training_data(args.data))
images = images.unsqueeze(1).contiguous(memory_format=torch.channels_last)

if args.variant in ("", "eager"):
    optimizer = torch.optim.SGD(
        model.parameters(), lr=common.LEARNING_RATE, momentum=common.MOMENTUM, fused=True
    )

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

else:
    names = [name for name, _ in model.named_parameters()]
    params = [p.detach().clone() for _, p in model.named_parameters()]
    momenta = [torch.zeros_like(p) for p in params]

    def loss_of(params, x, y):
        logits = torch.func.functional_call(model, dict(zip(names, params)), (x,))
        return F.cross_entropy(logits, y)

    def plain_step(params, momenta, x, y):
        grads, loss = torch.func.grad_and_value(loss_of)(params, x, y)
        for p, m, g in zip(params, momenta, grads):
            m.mul_(common.MOMENTUM).add_(g)
            p.sub_(common.LEARNING_RATE * m)
        return loss

    mode = "max-autotune" if args.variant == "compile-autotune" else "default"
    compiled = torch.compile(plain_step, mode=mode, fullgraph=True, dynamic=False)

    def step(x, y):
        with torch.no_grad():
            return compiled(params, momenta, x, y)


class Order:
    """Batches of a fresh random order each epoch; a ragged rest is left out."""

    def __init__(self):
        self.position = len(images)

    def next(self):
        if self.position + args.batch > len(images):
            self.order = torch.randperm(len(images))
            self.position = 0
        index = self.order[self.position : self.position + args.batch]
        self.position += args.batch
        return images[index], labels[index]


order = Order()


def run(steps):
    for _ in range(steps):
        step(*order.next())


def losses(steps):
    result = []
    for k in range(steps):
        part = slice(k * args.batch, (k + 1) * args.batch)
        result.append(step(images[part], labels[part]))
    return result


common.serve(run, losses, args)
