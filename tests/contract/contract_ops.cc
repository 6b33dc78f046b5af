// SPDX-License-Identifier: Apache-2.0
#include "contract/contract_ops.h"

#include "tileops/op/explain.h"
#include "tileops/spec/registry.h"

namespace tileops::contract {
namespace {

const bool specs_loaded = [] {
  const std::string path = std::string(TILEOPS_TEST_DIR) + "/contract/ops.yaml";
  spec::load_spec_file(path);
  return true;
}();

double value_or(const Params& params, std::string_view name, double otherwise) {
  const Value* value = params.find(name);
  return value == nullptr ? otherwise : *value->as_double();
}
std::string text_or_empty(const Params& params, std::string_view name) {
  const Value* value = params.find(name);
  return value == nullptr ? std::string() : *value->as_string();
}
bool flag_or(const Params& params, std::string_view name, bool otherwise) {
  const Value* value = params.find(name);
  return value == nullptr ? otherwise : *value->as_bool();
}

void add(const Tensor& x, double amount, const Tensor& y) {
  for (int64_t i = 0; i < x.shape()[0]; ++i) {
    for (int64_t j = 0; j < x.shape()[1]; ++j) {
      const Tensor from = x.select(0, i).narrow(0, j, 1), to = y.select(0, i).narrow(0, j, 1);
      store_element(y.dtype(), to.data(), load_element(x.dtype(), from.data()) + amount);
    }
  }
}

void sum_rows(const Tensor& x, const Tensor& sums) {
  for (int64_t i = 0; i < x.shape()[0]; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < x.shape()[1]; ++j) sum += x.at({i, j});
    store_element(sums.dtype(), sums.narrow(0, i, 1).data(), sum);
  }
}

}  // namespace

size_t ScaleCall::hash() const {
  return hash_of(m, n, static_cast<int>(dtype), factor, tag, static_cast<int>(device.type),
                 device.index);
}

std::string ScaleCall::to_string() const {
  return "M " + std::to_string(m) + ", N " + std::to_string(n);
}

void ScaleKernel::run(const Tensor& x, const Tensor& y) const {
  at(Point::kKernel, tag_);
  for (int64_t i = 0; i < x.shape()[0]; ++i) {
    for (int64_t j = 0; j < x.shape()[1]; ++j) {
      const Tensor to = y.select(0, i).narrow(0, j, 1);
      store_element(y.dtype(), to.data(), x.at({i, j}) * factor_);
    }
  }
}

void ScaleKernel::request_tune() {
  if (tile_.load() == 8) return;
  at(Point::kTune, tag_);
  tile_.store(8);
}

Implementation<Scale> scale_implementation(ImplementationInfo info,
                                           std::function<Refusal(const ScaleCall&)> refusal) {
  const std::string key = info.key;
  return {.info = std::move(info),
          .refusal = std::move(refusal),
          .entry_for = [key](const ScaleCall& call) {
            // Piece by piece: gcc 12 destroys what a braced list that failed never made.
            Value::List identity;
            identity.emplace_back(call.factor);
            identity.emplace_back(call.tag);
            EntryFor<Scale> wanted;
            wanted.identity = std::move(identity);
            wanted.build = [key, factor = call.factor, tag = call.tag](const BuildOptions&) {
              at(Point::kEntryBuild, tag);
              return std::make_shared<ScaleKernel>(key, factor, tag);
            };
            return wanted;
          }};
}

ScaleOp::ScaleOp(double factor, std::string tag, OpOptions options)
    : UnaryOp({{"factor", factor}, {"tag", tag}}, std::move(options)),
      factor_(factor),
      tag_(std::move(tag)) {
  at(Point::kConstruct, tag_);
}

std::shared_ptr<ScaleOp> ScaleOp::from_params(const Params& params, const OpOptions& options) {
  return std::make_shared<ScaleOp>(value_or(params, "factor", 2), text_or_empty(params, "tag"),
                                   options);
}

std::vector<AnyImplementation> ScaleOp::kernel_types() {
  return {erase(scale_implementation(
              {.key = "scale_plain", .devices = {DeviceType::kCPU}, .general = true},
              [](const ScaleCall&) { return Refusal(); })),
          erase(scale_implementation({.key = "scale_fours", .devices = {DeviceType::kCPU}},
                                     [](const ScaleCall& call) -> Refusal {
                                       if (call.n % 4 == 0) return std::nullopt;
                                       return "N must be a multiple of 4";
                                     })),
          erase(scale_implementation(
              {.key = "scale_far", .devices = {DeviceType::kCUDA}, .archs = {"sm_90a"}},
              [](const ScaleCall&) { return Refusal(); }))};
}

ScaleCall ScaleOp::spec_of(const Tensor& x) const {
  return {x.shape()[0], x.shape()[1], x.dtype(), factor_, tag_, x.device()};
}

Results ScaleOp::forward(Call& call) const {
  at(Point::kForward, tag_);
  const Tensor y = call.output();
  kernel_for<Scale>(call, spec_of(call.input(0))).run(call.input(0), y);
  return {result_of(tag_, y)};
}

TwinOp::TwinOp(double factor, std::string tag, OpOptions options)
    : UnaryOp({{"factor", factor}, {"tag", tag}}, std::move(options)) {}

std::shared_ptr<TwinOp> TwinOp::from_params(const Params& params, const OpOptions& options) {
  return std::make_shared<TwinOp>(value_or(params, "factor", 2), text_or_empty(params, "tag"),
                                  options);
}

Results TwinOp::forward(Call& call) const {
  const Tensor y = call.output();
  add(call.input(0), 100, y);
  return {y};
}

ShiftOp::ShiftOp(OpOptions options) : TypedOp({}, std::move(options)) {}

std::shared_ptr<ShiftOp> ShiftOp::from_params(const Params&, const OpOptions& options) {
  return std::make_shared<ShiftOp>(options);
}

Tensor ShiftOp::invoke(const Op& op, const Tensor& x, const Tensor& shift) {
  const Tensor inputs[] = {x, shift};
  return op.call({inputs, {}})[0];
}

Results ShiftOp::forward(Call& call) const {
  const Tensor y = call.output();
  add(call.input(0), call.input(1).defined() ? call.input(1).at({0}) : 0, y);
  return {y};
}

ChainOp::ChainOp(double factor, std::string tag, std::shared_ptr<Op> first_op,
                 std::shared_ptr<Op> second_op, OpOptions options)
    : UnaryOp({{"factor", factor}, {"tag", tag}}, std::move(options)), tag_(std::move(tag)) {
  first_ = delegate_for<"first">(settled, std::move(first_op), factor, tag_ + ".first");
  second_ = delegate_for<"second">(settled, std::move(second_op), factor, tag_ + ".second");
}

std::shared_ptr<ChainOp> ChainOp::from_params(const Params& params, const OpOptions& options,
                                              const Injected& injected) {
  return std::make_shared<ChainOp>(value_or(params, "factor", 2), text_or_empty(params, "tag"),
                                   injected.get<std::shared_ptr<Op>>("first_op"),
                                   injected.get<std::shared_ptr<Op>>("second_op"), options);
}

Results ChainOp::forward(Call& call) const {
  at(Point::kForward, tag_);
  const Tensor middle = first_(feed(tag_ + ".first", call.input(0)));
  return {result_of(tag_, second_(feed(tag_ + ".second", middle), call.out()))};
}

NestOp::NestOp(std::string tag, std::shared_ptr<Op> inner_op, OpOptions options)
    : UnaryOp({{"tag", tag}}, std::move(options)), tag_(std::move(tag)) {
  inner_ =
      delegate_for<"inner">(settled, std::move(inner_op), 3.0, tag_ + ".inner", nullptr, nullptr);
  last_ = delegate_for<"last">(settled, nullptr, 5.0, tag_ + ".last");
}

std::shared_ptr<NestOp> NestOp::from_params(const Params& params, const OpOptions& options) {
  return std::make_shared<NestOp>(text_or_empty(params, "tag"), nullptr, options);
}

Results NestOp::forward(Call& call) const {
  at(Point::kForward, tag_);
  const Tensor inner = inner_(feed(tag_ + ".inner", call.input(0)));
  return {result_of(tag_, last_(feed(tag_ + ".last", inner)))};
}

DeepOp::DeepOp(std::string tag, std::shared_ptr<Op> middle_op, OpOptions options)
    : UnaryOp({{"tag", tag}}, std::move(options)), tag_(std::move(tag)) {
  middle_ = delegate_for<"middle">(settled, std::move(middle_op), tag_ + ".middle", nullptr);
  tail_ = delegate_for<"tail">(settled, nullptr, 7.0, tag_ + ".tail");
}

std::shared_ptr<DeepOp> DeepOp::from_params(const Params& params, const OpOptions& options) {
  return std::make_shared<DeepOp>(text_or_empty(params, "tag"), nullptr, options);
}

Results DeepOp::forward(Call& call) const {
  at(Point::kForward, tag_);
  const Tensor middle = middle_(feed(tag_ + ".middle", call.input(0)));
  return {result_of(tag_, tail_(feed(tag_ + ".tail", middle)))};
}

WidthOp::WidthOp(std::string tag, OpOptions options)
    : UnaryOp({{"tag", tag}}, std::move(options)), tag_(std::move(tag)) {}

std::shared_ptr<WidthOp> WidthOp::from_params(const Params& params, const OpOptions& options) {
  return std::make_shared<WidthOp>(text_or_empty(params, "tag"), options);
}

Results WidthOp::forward(Call& call) const {
  const int64_t n = call.index("N");
  const auto scale =
      delegate_for<"by_width">(n, nullptr, static_cast<double>(n), tag_ + "." + std::to_string(n));
  return {scale(call.input(0))};
}

void MixKernel::run(const Tensor& x, const Tensor& y) const {
  for (int64_t i = 0; i < x.shape()[0]; ++i) {
    for (int64_t j = 0; j < x.shape()[1]; ++j) {
      const Tensor to = y.select(0, i).narrow(0, j, 1);
      store_element(y.dtype(), to.data(), y.at({i, j}) + x.at({i, j}));
    }
  }
}

std::vector<AnyImplementation> MixOp::kernel_types() {
  return {erase(Implementation<Mix>{
              .info = {.key = "mix_plain", .devices = {DeviceType::kCPU}, .general = true},
              .refusal = [](const ScaleCall&) { return Refusal(); },
              .entry_for = [](const ScaleCall&) -> EntryFor<Mix> {
                return {Value(), [](const BuildOptions&) { return std::make_shared<MixKernel>(); }};
              }}),
          erase(scale_implementation(
              {.key = "mix_gain", .devices = {DeviceType::kCPU}, .general = true},
              [](const ScaleCall&) { return Refusal(); }))};
}

MixOp::MixOp(OpOptions options) : UnaryOp({}, std::move(options)) {
  scale_ = delegate_for<"scale">(settled, nullptr, 2.0, "mix.scale");
}

std::shared_ptr<MixOp> MixOp::from_params(const Params&, const OpOptions& options) {
  return std::make_shared<MixOp>(options);
}

Results MixOp::forward(Call& call) const {
  const Tensor& x = call.input(0);
  const Tensor y = scale_(x);
  const ScaleCall spec{x.shape()[0], x.shape()[1], x.dtype(), 10, "mix.gain", x.device()};
  kernel_for<Mix>(call, spec).run(x, y);
  kernel_for<Scale>(call, spec).run(y, y);
  return {y};
}

EffectsOp::EffectsOp(bool in_place, bool want_sums, OpOptions options)
    : TypedOp({{"in_place", in_place}, {"want_sums", want_sums}}, std::move(options)) {}

std::shared_ptr<EffectsOp> EffectsOp::from_params(const Params& params, const OpOptions& options) {
  return std::make_shared<EffectsOp>(flag_or(params, "in_place", false),
                                     flag_or(params, "want_sums", true), options);
}

Results EffectsOp::operator()(const Tensor& x, const Tensor& out) const {
  const Tensor inputs[] = {x};
  const Tensor outs[] = {out};
  return call({inputs, outs});
}

Results EffectsOp::forward(Call& call) const {
  const Tensor& x = call.input(0);
  const Tensor y = call.output(0);
  const Tensor sums = call.output(1);
  add(x, 1, y);
  if (sums.defined()) sum_rows(x, sums);
  if (*params().at("in_place").as_bool()) add(x, 1, x);
  return {y, sums};
}

AliasOp::AliasOp(OpOptions options) : UnaryOp({}, std::move(options)) {}

std::shared_ptr<AliasOp> AliasOp::from_params(const Params&, const OpOptions& options) {
  return std::make_shared<AliasOp>(options);
}

Results AliasOp::forward(Call& call) const {
  const Tensor& x = call.input(0);
  add(x, 1, x);
  return {at(Point::kResult, "alias") ? Tensor::empty(x.shape(), x.dtype()) : x};
}

TableOp::TableOp(Tensor table, OpOptions options)
    : TypedOp({}, std::move(options), {table}), table_(std::move(table)) {}

std::shared_ptr<TableOp> TableOp::from_params(const Params&, const OpOptions& options) {
  return std::make_shared<TableOp>(iota(2, 3), options);
}

Results TableOp::forward(Call& call) const {
  if (at(Point::kResult, "table")) return {table_};
  const Tensor y = call.output();
  add(table_, 0, y);
  return {y};
}

CountOp::CountOp(OpOptions options) : TypedOp({}, std::move(options)) {}

std::shared_ptr<CountOp> CountOp::from_params(const Params&, const OpOptions& options) {
  return std::make_shared<CountOp>(options);
}

Tensor CountOp::operator()(const Tensor& x, const Tensor& rows) const {
  const Tensor inputs[] = {x, rows};
  return call({inputs, {}})[0];
}

Results CountOp::forward(Call& call) const {
  const Tensor y = call.output();
  add(call.input(0), 0, y);
  return {y};
}

ProbeOp::ProbeOp(bool want_sums, OpOptions options)
    : TypedOp({{"want_sums", want_sums}}, std::move(options)) {}

std::shared_ptr<ProbeOp> ProbeOp::from_params(const Params& params, const OpOptions& options) {
  return std::make_shared<ProbeOp>(flag_or(params, "want_sums", false), options);
}

Results ProbeOp::operator()(const Tensor& x) const {
  const Tensor inputs[] = {x};
  return call({inputs, {}});
}

Results ProbeOp::forward(Call& call) const {
  at(Point::kForward, "probe");
  const Tensor sums = call.output();
  if (sums.defined()) sum_rows(call.input(0), sums);
  return {sums};
}

RuleOp::RuleOp(OpOptions options) : UnaryOp({}, std::move(options)) {
  scale_ = delegate_for<"scale">(settled, nullptr, 2.0, "rule.scale");
}

std::shared_ptr<RuleOp> RuleOp::from_params(const Params&, const OpOptions& options) {
  return std::make_shared<RuleOp>(options);
}

Results RuleOp::forward(Call& call) const { return {scale_(call.input(0))}; }

FreeOp::FreeOp(Body body, OpOptions options)
    : UnaryOp({{"factor", 2.0}, {"tag", ""}}, std::move(options)), body_(std::move(body)) {}

std::shared_ptr<FreeOp> FreeOp::from_params(const Params&, const OpOptions& options) {
  return std::make_shared<FreeOp>(Body(), options);
}

std::shared_ptr<Op> FreeOp::hold(std::string_view stage, const Value& identity,
                                 std::shared_ptr<Op> given) const {
  return Op::delegate_for(stage, identity, std::move(given), [&]() -> std::shared_ptr<Op> {
    const std::string tag = "free." + std::string(stage);
    if (stage == "c") {
      return std::make_shared<ChainOp>(2.0, tag, nullptr, nullptr, inherited_options());
    }
    return std::make_shared<ScaleOp>(2.0, tag, inherited_options());
  });
}

Results FreeOp::forward(Call& call) const {
  if (body_ == nullptr) return {UnaryOp<ScaleOp>::invoke(*hold("a", settled), call.input(0))};
  return {body_(*this, call)};
}

}  // namespace tileops::contract
