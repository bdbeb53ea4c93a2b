#include "engine/checkpoints/torch_pickle.h"

#include <array>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/checkpoints/foreign_file.h"
#include "engine/checkpoints/pickle_names.h"
#include "engine/checkpoints/safetensors_header.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

// Limits that protect against hostile files. The pickle of a model of a thousand layers has 150 KB.
constexpr std::size_t kMaxPickleBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxPickleValues = 2'000'000;
constexpr std::size_t kMaxTensors = 200'000;
constexpr std::size_t kMaxMarks = 1000;
constexpr std::size_t kMaxDimensions = 32;

/// A Python object that a pickle may name.
struct KnownObject {
  std::string_view name;   ///< "MODULE.NAME"
  std::string_view dtype;  ///< element type of a storage class; empty for other objects
};

constexpr std::string_view kOrderedDict = "collections.OrderedDict";
constexpr std::string_view kRebuildTensor = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";
constexpr std::array<KnownObject, 14> kKnownObjects = {{{kOrderedDict, ""},
                                                        {kRebuildTensor, ""},
                                                        {kRebuildParameter, ""},
                                                        {"torch.FloatStorage", "F32"},
                                                        {"torch.DoubleStorage", "F64"},
                                                        {"torch.HalfStorage", "F16"},
                                                        {"torch.BFloat16Storage", "BF16"},
                                                        {"torch.LongStorage", "I64"},
                                                        {"torch.IntStorage", "I32"},
                                                        {"torch.ShortStorage", "I16"},
                                                        {"torch.CharStorage", "I8"},
                                                        {"torch.ByteStorage", "U8"},
                                                        {"torch.BoolStorage", "BOOL"},
                                                        {"torch.ComplexFloatStorage", "C64"}}};

/// Returns a text for messages: printable ASCII only, shortened.
std::string shown_name(std::string_view text) {
  constexpr std::size_t kMax = 200;
  std::string shown(text.substr(0, kMax));
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return text.size() > kMax ? shown + "..." : shown;
}

/// Stack machine that executes a pickle.
class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, const std::string& path)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path_(path) {}

  PickleTree run() {
    if (text_.size() > kMaxPickleBytes) {
      fail(ErrorKind::data, "{}: data.pkl: expected at most {} bytes, found {}", path_,
           kMaxPickleBytes, text_.size());
    }
    for (;;) {
      op_at_ = at_;
      const auto op = static_cast<unsigned char>(take(1)[0]);
      if (op == '.') break;
      if (!push_scalar(op) && !fill_container(op) && !use_memo(op) && !use_object(op)) {
        refuse_opcode(op);
      }
    }
    tree_.root = pop();
    if (!stack_.empty() || !marks_.empty()) refuse("one value", "more on the stack");
    return std::move(tree_);
  }

 private:
  [[noreturn]] void refuse(std::string_view expected, std::string_view found) const {
    fail(ErrorKind::data, "{}: data.pkl, byte {}: expected {}, found {}: the file is damaged",
         path_, op_at_, expected, found);
  }
  [[noreturn]] void refuse_opcode(unsigned char op) const {
    const std::string_view name = pickle_opcode_name(op);
    if (name.empty()) refuse("an opcode of pickle", fmt::format("the byte 0x{:02x}", op));
    fail(ErrorKind::data,
         "{}: data.pkl, byte {}: found the pickle opcode {}. dpt reads tensors, dictionaries, "
         "lists, strings and numbers; it executes nothing{}",
         path_, op_at_, name, torch_conversion(path_, TorchContent::objects));
  }
  [[noreturn]] void refuse_object(std::string_view name) const {
    fail(ErrorKind::data,
         "{}: data.pkl, byte {}: found the Python object {}. dpt reads tensors, dictionaries, "
         "lists, strings and numbers; it executes nothing{}",
         path_, op_at_, shown_name(name), torch_conversion(path_, TorchContent::objects));
  }

  std::string_view take(std::size_t count) {
    if (count > text_.size() - at_) refuse("more bytes", "the end of data.pkl");
    const std::string_view part = text_.substr(at_, count);
    at_ += count;
    return part;
  }
  /// Reads a little-endian number of up to 8 bytes.
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    int shift = 0;
    for (const char c : take(bytes)) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(c)) << shift;
      shift += 8;
    }
    return value;
  }
  std::string_view line() {
    const std::size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) refuse("a line", "the end of data.pkl");
    const std::string_view found = take(end - at_);
    ++at_;
    return found;
  }

  void push(PickleRef ref) {
    if (stack_.size() >= kMaxPickleValues) refuse("fewer values", "too many on the stack");
    stack_.push_back(ref);
  }
  void push_new(PickleValue value) {
    if (tree_.values.size() >= kMaxPickleValues) {
      refuse(fmt::format("at most {} values", kMaxPickleValues), "more");
    }
    tree_.values.push_back(std::move(value));
    push(static_cast<PickleRef>(tree_.values.size() - 1));
  }
  void push_integer(std::int64_t value, PickleKind kind = PickleKind::integer) {
    push_new({kind, value, {}, {}});
  }
  void push_text(std::string_view text) { push_new({PickleKind::text, 0, text, {}}); }
  void push_items(PickleKind kind, std::vector<PickleRef> items) {
    push_new({kind, 0, {}, std::move(items)});
  }
  PickleRef top() {
    if (stack_.size() <= floor()) refuse("a value on the stack", "none");
    return stack_.back();
  }
  PickleRef pop() {
    const PickleRef ref = top();
    stack_.pop_back();
    return ref;
  }
  /// Returns the size of the stack at the latest mark, below which no values may be popped.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::vector<PickleRef> pop_to_mark() {
    if (marks_.empty()) refuse("a mark on the stack", "none");
    std::vector<PickleRef> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                 stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }
  std::vector<PickleRef> pop_some(std::size_t count) {
    std::vector<PickleRef> items(count);
    while (count > 0) items[--count] = pop();
    return items;
  }
  const PickleValue& value(PickleRef ref) const { return tree_.values[ref]; }
  /// Returns the value on top of the stack, which must be of the given kind.
  PickleValue& top_of(PickleKind kind) {
    PickleValue& found = tree_.values[top()];
    if (found.kind != kind) refuse(kind_text(kind), kind_text(found.kind));
    return found;
  }

  bool push_scalar(unsigned char op) {
    switch (op) {
      case 'N':
        push_new({});
        return true;
      case 0x88:
      case 0x89:
        push_integer(op == 0x88 ? 1 : 0, PickleKind::boolean);
        return true;
      case 'J':
        push_integer(static_cast<std::int32_t>(number(4)));
        return true;
      case 'K':
        push_integer(static_cast<std::int64_t>(number(1)));
        return true;
      case 'M':
        push_integer(static_cast<std::int64_t>(number(2)));
        return true;
      case 0x8a:
        push_long(number(1));
        return true;
      case 'G':
        take(8);
        push_integer(0, PickleKind::number);
        return true;
      case 'X':
        push_text(take(number(4)));
        return true;
      case 0x8c:
        push_text(take(number(1)));
        return true;
      case 0x8d:
        push_text(take(number(8)));
        return true;
      default:
        return false;
    }
  }

  void push_long(std::uint64_t bytes) {
    if (bytes > 8) {
      take(bytes);
      push_integer(0, PickleKind::number);
      return;
    }
    const std::uint64_t bits = number(bytes);
    const int unused = 64 - 8 * static_cast<int>(bytes);
    // Two's complement: shifting back extends the sign.
    push_integer(bytes == 0 ? 0 : static_cast<std::int64_t>(bits << unused) >> unused);
  }

  bool fill_container(unsigned char op) {
    switch (op) {
      case '(':
        if (marks_.size() >= kMaxMarks) {
          refuse(fmt::format("at most {} nested values", kMaxMarks), "more");
        }
        marks_.push_back(stack_.size());
        return true;
      case '}':
        push_items(PickleKind::dictionary, {});
        return true;
      case ']':
        push_items(PickleKind::list, {});
        return true;
      case ')':
        push_items(PickleKind::tuple, {});
        return true;
      case 0x85:
      case 0x86:
      case 0x87:
        push_items(PickleKind::tuple, pop_some(op - 0x84U));
        return true;
      case 't':
        push_items(PickleKind::tuple, pop_to_mark());
        return true;
      case 'a':
        append(PickleKind::list, pop_some(1));
        return true;
      case 'e':
        append(PickleKind::list, pop_to_mark());
        return true;
      case 's':
        append(PickleKind::dictionary, pop_some(2));
        return true;
      case 'u':
        append(PickleKind::dictionary, pop_to_mark());
        return true;
      default:
        return false;
    }
  }

  void append(PickleKind kind, const std::vector<PickleRef>& items) {
    std::vector<PickleRef>& to = top_of(kind).items;
    if (kind == PickleKind::dictionary && items.size() % 2 != 0) {
      refuse("a value for each key", "a key without one");
    }
    // Limit the items of containers too: two bytes of a pickle can add a value of the memo once
    // more.
    held_ += items.size();
    if (held_ > kMaxPickleValues) refuse(fmt::format("at most {} items", kMaxPickleValues), "more");
    to.insert(to.end(), items.begin(), items.end());
  }

  bool use_memo(unsigned char op) {
    switch (op) {
      case 'q':
        memoize(number(1));
        return true;
      case 'r':
        memoize(number(4));
        return true;
      case 0x94:
        memoize(memo_.size());
        return true;
      case 'h':
        recall(number(1));
        return true;
      case 'j':
        recall(number(4));
        return true;
      default:
        return false;
    }
  }
  void memoize(std::uint64_t index) {
    if (memo_.size() >= kMaxPickleValues) refuse("fewer values", "too many in the memo");
    memo_[index] = top();
  }
  void recall(std::uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse(fmt::format("a value in the memo at {}", index), "none");
    push(found->second);
  }

  bool use_object(unsigned char op) {
    switch (op) {
      case 0x80:
        if (const std::uint64_t version = number(1); version < 2 || version > 5) {
          refuse("protocol 2 to 5", fmt::format("{}", version));
        }
        return true;
      case 0x95:
        number(8);  // length of a frame, needed only by readers of streams
        return true;
      case 'c': {
        const std::string_view module = line();
        push_object(module, line());
        return true;
      }
      case 0x93: {
        const std::vector<PickleRef> names = pop_some(2);
        for (const PickleRef name : names) need(name, PickleKind::text);
        push_object(value(names[0]).text, value(names[1]).text);
        return true;
      }
      case 'R':
        call();
        return true;
      case 'b':
        // Ignore attributes of a dictionary, such as `_metadata`: a state_dict's layer versions.
        need(pop(), PickleKind::dictionary);
        top_of(PickleKind::dictionary);
        return true;
      case 'Q':
        push_storage();
        return true;
      default:
        return false;
    }
  }

  void push_object(std::string_view module, std::string_view name) {
    const std::string whole = fmt::format("{}.{}", module, name);
    for (const KnownObject& known : kKnownObjects) {
      if (known.name != whole) continue;
      push_new({PickleKind::object, 0, known.name, {}});
      return;
    }
    refuse_object(whole);
  }

  void need(PickleRef ref, PickleKind kind) const {
    if (value(ref).kind != kind) refuse(kind_text(kind), kind_text(value(ref).kind));
  }
  /// Returns the items of a tuple of at least `count` items.
  const std::vector<PickleRef>& tuple_of(PickleRef ref, std::size_t count) const {
    need(ref, PickleKind::tuple);
    if (value(ref).items.size() < count) {
      refuse(fmt::format("a tuple of {}", count), fmt::format("{}", value(ref).items.size()));
    }
    return value(ref).items;
  }
  std::uint64_t size_of(PickleRef ref) const {
    need(ref, PickleKind::integer);
    if (value(ref).integer < 0) {
      refuse("a size of at least 0", fmt::format("{}", value(ref).integer));
    }
    return static_cast<std::uint64_t>(value(ref).integer);
  }
  std::vector<std::int64_t> sizes_of(PickleRef ref) const {
    std::vector<std::int64_t> sizes;
    for (const PickleRef item : tuple_of(ref, 0)) {
      sizes.push_back(static_cast<std::int64_t>(size_of(item)));
    }
    return sizes;
  }

  /// Replaces a tuple ("storage", class, key, device, elements) by the storage it describes.
  void push_storage() {
    const std::vector<PickleRef> id = tuple_of(pop(), 5);
    need(id[0], PickleKind::text);
    need(id[1], PickleKind::object);
    need(id[2], PickleKind::text);
    TorchStorage storage;
    for (const KnownObject& known : kKnownObjects) {
      if (known.name == value(id[1]).text) storage.dtype = known.dtype;
    }
    if (value(id[0]).text != "storage" || storage.dtype.empty()) {
      refuse("a storage", shown_name(value(id[1]).text));
    }
    storage.key = value(id[2]).text;
    storage.elements = size_of(id[4]);
    storages_.push_back(storage);
    push_integer(static_cast<std::int64_t>(storages_.size() - 1), PickleKind::storage);
  }

  /// Pushes the result of a call of a known function.
  void call() {
    const PickleRef args = pop();
    const PickleRef callee = pop();
    need(callee, PickleKind::object);
    const std::string_view name = value(callee).text;
    if (name == kRebuildTensor) {
      push_tensor(tuple_of(args, 6));
    } else if (name == kRebuildParameter) {
      const PickleRef data = tuple_of(args, 1)[0];
      need(data, PickleKind::tensor);
      push(data);
    } else if (name == kOrderedDict && tuple_of(args, 0).empty()) {
      push_items(PickleKind::dictionary, {});
    } else {
      refuse("a call of a known function", fmt::format("{} with other arguments", name));
    }
  }

  /// Pushes a tensor. `args`: storage, offset, shape, strides, requires_grad, hooks[, metadata].
  void push_tensor(const std::vector<PickleRef>& args) {
    need(args[0], PickleKind::storage);
    // Refuse a lazy negation or conjugation, which the storage's bytes do not include.
    if (args.size() > 6 && value(args[6]).kind != PickleKind::none &&
        !value(args[6]).items.empty()) {
      refuse_object("torch tensor with metadata");
    }
    if (tree_.tensors.size() >= kMaxTensors) {
      refuse(fmt::format("at most {} tensors", kMaxTensors), "more");
    }
    TorchTensor tensor;
    tensor.storage = storages_[value(args[0]).integer];
    tensor.offset = size_of(args[1]);
    tensor.shape = sizes_of(args[2]);
    tensor.strides = sizes_of(args[3]);
    check_view(tensor);
    tree_.tensors.push_back(std::move(tensor));
    push_integer(static_cast<std::int64_t>(tree_.tensors.size() - 1), PickleKind::tensor);
  }

  void check_view(TorchTensor& tensor) const {
    const std::size_t rank = tensor.shape.size();
    if (rank > kMaxDimensions || tensor.strides.size() != rank) {
      refuse(fmt::format("at most {} dimensions, each with a stride", kMaxDimensions),
             fmt::format("{} with {}", rank, tensor.strides.size()));
    }
    if (!tensor_bytes(tensor.storage.dtype, tensor.shape, tensor.bytes)) {
      refuse("a tensor of less than 2^64 bytes", "more");
    }
    if (tensor.bytes == 0) return;
    std::uint64_t last = tensor.offset;
    bool fits = true;
    for (std::size_t i = 0; i < rank; ++i) {
      std::uint64_t reach = 0;
      fits = fits &&
             !__builtin_mul_overflow(static_cast<std::uint64_t>(tensor.shape[i] - 1),
                                     static_cast<std::uint64_t>(tensor.strides[i]), &reach) &&
             !__builtin_add_overflow(last, reach, &last);
    }
    if (!fits || last >= tensor.storage.elements) {
      refuse(fmt::format("a tensor within the {} elements of its storage", tensor.storage.elements),
             "one that goes beyond");
    }
  }

  std::string_view text_;
  const std::string& path_;
  std::size_t at_ = 0, op_at_ = 0;
  std::vector<PickleRef> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, PickleRef> memo_;
  std::vector<TorchStorage> storages_;
  std::size_t held_ = 0;
  PickleTree tree_;
};

}  // namespace

PickleTree read_torch_pickle(std::span<const std::byte> bytes, const std::string& path) {
  return PickleMachine(bytes, path).run();
}

}  // namespace dpt
