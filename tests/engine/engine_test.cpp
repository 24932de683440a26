#include "galvani/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/engine_testing.h"

namespace galvani {
namespace {

TEST(Engine, GeneratesExactlyItsBudgetAndTimesIt) {
  auto engine = load();
  ASSERT_NE(engine, nullptr);
  auto id = engine->submit(request_of({1, 2, 3}, 20));
  ASSERT_TRUE(id.has_value());
  const Outcome outcome = run(*engine, *id);
  EXPECT_EQ(outcome.tokens.size(), 20u);
  EXPECT_EQ(outcome.finish, FinishReason::kLength);
  EXPECT_GE(outcome.times.first_token, outcome.times.start);
  EXPECT_GT(outcome.times.last_token, outcome.times.first_token);
  EXPECT_EQ(engine->poll(*id).error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(engine->step().value());
  const auto kernels = engine->kernels_run();
  EXPECT_FALSE(kernels.empty());
}

TEST(Engine, TheSameSeedGivesTheSameTextWhateverRunsBeside) {
  auto engine = load(4);
  ASSERT_NE(engine, nullptr);
  std::vector<std::vector<int32_t>> alone;
  const auto sampled = [&](int i) {
    Request request = request_of({static_cast<int32_t>(i + 1), 7, static_cast<int32_t>(40 + i)}, 12 + i);
    request.sampling.temperature = 1.0f;
    request.sampling.top_p = 0.95f;
    request.sampling.seed = static_cast<uint64_t>(100 + i);
    return request;
  };
  for (int i = 0; i < 6; ++i) alone.push_back(run(*engine, engine->submit(sampled(i)).value()).tokens);
  EXPECT_NE(alone[0], alone[1]);
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(engine->submit(sampled(i)).value());  // more than run at once
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(run(*engine, ids[static_cast<size_t>(i)]).tokens, alone[static_cast<size_t>(i)]) << i;
}

TEST(Engine, LongPromptsArePrefilledInChunksOfTheBudget) {
  LoadOptions options;
  options.model = model("hf/llama");
  options.act = "f32";
  options.batch_invariant = true;
  std::vector<int32_t> prompt;
  for (int i = 0; i < 200; ++i) prompt.push_back(i % 250);
  std::vector<std::vector<int32_t>> outputs;
  for (int budget : {512, 64, 7, 1}) {
    options.max_batch_tokens = budget;
    auto engine = Engine::load(options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    outputs.push_back(run(**engine, (*engine)->submit(request_of(prompt, 8)).value()).tokens);
    EXPECT_EQ(outputs.back(), outputs.front()) << "budget " << budget;
  }
}

TEST(Engine, CancelEndsQueuedAndRunningRequests) {
  auto engine = load(1);
  ASSERT_NE(engine, nullptr);
  const RequestId first = engine->submit(request_of({1}, 400)).value(),
                  second = engine->submit(request_of({2}, 400)).value();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine->step().value());
  EXPECT_TRUE(engine->cancel(second));
  EXPECT_EQ(run(*engine, second).finish, FinishReason::kCancelled);
  EXPECT_TRUE(engine->cancel(first));
  EXPECT_EQ(run(*engine, first).finish, FinishReason::kCancelled);
  EXPECT_FALSE(engine->cancel(first));
  EXPECT_FALSE(engine->cancel(12345));
  // Its place is free again.
  EXPECT_EQ(run(*engine, engine->submit(request_of({3}, 5)).value()).tokens.size(), 5u);
}

TEST(Engine, EndsWhenTheContextIsFull) {
  auto engine = load(1, 16);
  ASSERT_NE(engine, nullptr);
  const Outcome outcome = run(*engine, engine->submit(request_of({1, 2, 3, 4}, 100)).value());
  EXPECT_EQ(outcome.finish, FinishReason::kContext);
  EXPECT_EQ(outcome.tokens.size(), 13u);  // 12 more tokens fit behind the prompt, and the last one is only sampled
}

TEST(Engine, RefusesBadRequestsByName) {
  auto engine = load(1, 16);
  ASSERT_NE(engine, nullptr);
  const auto message = [&](Request request) {
    auto id = engine->submit(std::move(request));
    EXPECT_FALSE(id.has_value());
    return id ? std::string() : id.error().message;
  };
  EXPECT_NE(message(request_of({})).find("empty"), std::string::npos);
  EXPECT_NE(message(request_of({1, 256})).find("256"), std::string::npos);
  EXPECT_NE(message(request_of({-1})).find("-1"), std::string::npos);
  EXPECT_NE(message(request_of(std::vector<int32_t>(16, 1))).find("16"), std::string::npos);
  EXPECT_NE(message(request_of({1}, 0)).find("max_tokens"), std::string::npos);
  Request bad = request_of({1});
  bad.sampling.temperature = -1;
  EXPECT_NE(message(bad).find("temperature"), std::string::npos);
  bad = request_of({1});
  bad.sampling.logit_bias = {{999, 1.0f}};
  EXPECT_NE(message(bad).find("999"), std::string::npos);
}

TEST(Engine, LogitBiasAndStopIdsSteer) {
  auto engine = load();
  ASSERT_NE(engine, nullptr);
  Request request = request_of({1, 2}, 10);
  request.sampling.logit_bias = {{77, 100.0f}};
  EXPECT_EQ(run(*engine, engine->submit(request).value()).tokens, std::vector<int32_t>(10, 77));
  request.stop_ids = {77};
  const Outcome stopped = run(*engine, engine->submit(request).value());
  EXPECT_EQ(stopped.tokens.size(), 1u);
  EXPECT_EQ(stopped.finish, FinishReason::kStop);
}

// submit, cancel, poll and wait from several threads while one steps.
TEST(Engine, ManyThreadsMayTalkToIt) {
  auto engine = load(3);
  ASSERT_NE(engine, nullptr);
  std::atomic<bool> done{false};
  std::atomic<int> finished{0};
  std::thread stepper([&] {
    while (!done) {
      if (!engine->wait(std::chrono::milliseconds(20))) continue;
      EXPECT_TRUE(engine->step().has_value());
    }
  });
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 4; ++i) {
        auto id = engine->submit(request_of({c + 1, i + 1}, 6));
        ASSERT_TRUE(id.has_value());
        if (i == 3) engine->cancel(*id);
        size_t tokens = 0;
        while (true) {
          auto update = engine->poll(*id);
          ASSERT_TRUE(update.has_value());
          tokens += update->tokens.size();
          if (update->finish == FinishReason::kRunning) {
            std::this_thread::yield();
            continue;
          }
          const size_t least = update->finish == FinishReason::kLength ? 6 : 0;  // a cancelled one may end early
          EXPECT_GE(tokens, least);
          break;
        }
        ++finished;
      }
    });
  }
  for (auto& client : clients) client.join();
  done = true;
  stepper.join();
  EXPECT_EQ(finished, 16);
}

TEST(Engine, LoadRefusesBadOptionsByName) {
  const auto message = [](auto change) {
    LoadOptions options;
    options.model = model("hf/llama");
    change(options);
    auto engine = Engine::load(options);
    EXPECT_FALSE(engine.has_value());
    return engine ? std::string() : engine.error().message;
  };
  EXPECT_NE(message([](LoadOptions& o) { o.act = "f8"; }).find("f8"), std::string::npos);
  EXPECT_NE(message([](LoadOptions& o) { o.kv = "q4"; }).find("q4"), std::string::npos);
  EXPECT_NE(message([](LoadOptions& o) { o.device = "tpu"; }).find("tpu"), std::string::npos);
  EXPECT_NE(message([](LoadOptions& o) { o.arms = {{"qmatmul", "warp"}}; }).find("warp"), std::string::npos);
  EXPECT_NE(message([](LoadOptions& o) { o.arms = {{"conv", "x"}}; }).find("conv"), std::string::npos);
  EXPECT_NE(message([](LoadOptions& o) {
              o.arms = {{"qmatmul", "rows"}, {"attention", "ref"}, {"qmatmul", "ref"}};
            }).find("--arm qmatmul=ref: qmatmul has an arm already, rows"),
            std::string::npos);
  EXPECT_NE(message([](LoadOptions& o) { o.max_sequences = 0; }).find("0 sequences"), std::string::npos);
  EXPECT_NE(message([](LoadOptions& o) { o.model = "/nonexistent"; }).find("/nonexistent"), std::string::npos);
}

}  // namespace
}  // namespace galvani
