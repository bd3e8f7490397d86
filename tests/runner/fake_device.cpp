// A device that computes nothing: its queue is a clock that stands still until it is told to work, so that the
// order of synchronisations, events and readings of the host's clock can be proved through torch itself.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <string>
#include <vector>

namespace {

constexpr auto KIND = c10::DeviceType::PrivateUse1;
// Seconds: what the host's clock shows, and when the device is done with all that is in its queue.
double now_s = 0.0;
double done_s = 0.0;
std::vector<std::string> happened;

struct Moment {
  double at_s;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return KIND; }
  c10::Device exchangeDevice(c10::Device) const override { return {KIND, 0}; }
  c10::Device getDevice() const override { return {KIND, 0}; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(KIND, 0));
  }
  c10::Stream exchangeStream(c10::Stream) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(KIND, 0));
  }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Moment{0.0};
    static_cast<Moment*>(*event)->at_s = std::max(now_s, done_s);
    happened.emplace_back("event");
  }
  bool queryEvent(void* event) const override { return static_cast<Moment*>(event)->at_s <= now_s; }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Moment*>(event);
  }
  double elapsedTime(void* begin, void* end, const c10::DeviceIndex) const override {
    return 1e3 * (static_cast<Moment*>(end)->at_s - static_cast<Moment*>(begin)->at_s);
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    now_s = std::max(now_s, done_s);
    happened.emplace_back("synchronised");
  }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

void install() {
  static Hooks hooks;
  at::RegisterPrivateUse1HooksInterface(&hooks);
}

// Launch work: the host takes `host` seconds to launch what the device takes `device` seconds to do.
void launch(double host, double device) {
  now_s += host;
  done_s = std::max(now_s, done_s) + device;
  happened.emplace_back("launched");
}

double read_clock() {
  happened.emplace_back("clock");
  return now_s;
}

std::vector<std::string> take_happened() {
  std::vector<std::string> taken;
  taken.swap(happened);
  return taken;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("install", &install);
  module.def("launch", &launch);
  module.def("read_clock", &read_clock);
  module.def("take_happened", &take_happened);
}
