// SPDX-License-Identifier: Apache-2.0
// Rows are visited position by position over the whole batch: a request that has stopped costs
// nothing more (early exit), and every position's rows share the threads. Draft rows are read only
// where a draft is rejected.
#include "common/cpu/verify_cpu.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "common/cpu/rdk_cpu.h"
#include "common/cpu/residual.h"
#include "common/status.h"

namespace hetero_spec {
namespace {

constexpr int64_t kDrawGrain = 2;  // chunks of a draw per task

// What is drawn at the row where a request stops.
enum class Draw { kTarget, kResidual };

struct Stop {
  int64_t request_idx;
  int64_t position;
  Draw draw;
  float scale;  // of the target law in the residual: 1 for the token rule, P_tau for the block rule
  RowLaw target;         // law of the row (unused for rows of probabilities)
  RowStats draft;        // law of the draft row, for a residual
  float leaked_mass;     // of the draft row
  const ChunkSum* sums;  // the row's chunk sums while they last, else null
  const float* spread_masses =
      nullptr;  // of the draft row, for a residual (SpreadSources), or null
};

class Verifier {
 public:
  Verifier(const Ragged& ragged, const VerifyInputs& inputs, const VerifyOutputs& outputs,
           const Parallel& parallel)
      : ragged_(ragged), in_(inputs), out_(outputs), parallel_(parallel), kernels_(row_kernels()) {
    for (int64_t b = 0; b < ragged_.batch_size; ++b) {
      num_drafts_.push_back(num_valid_draft_tokens(ragged_, b));
      params_.push_back(request_params(in_.params, b));
      out_.num_accepted_tokens[b] = 0;
      out_.status[b] =
          !in_.are_probs && std::isnan(params_[b].inv_temperature) ? kInvalidParameter : 0;
    }
    std::fill_n(out_.output_token_ids, ragged_.batch_size * width(), kPlaceholderTokenId);
  }

  // Section 1 of the rules: token by token.
  void token_rule() {
    std::vector<int64_t> live(ragged_.batch_size);
    for (int64_t b = 0; b < ragged_.batch_size; ++b) live[b] = b;
    for (int64_t position = 0; !live.empty(); ++position) {
      target_laws(live, position);
      draft_laws(live, position);
      std::vector<int64_t> still_live;
      std::vector<Stop> stops;
      for (size_t idx = 0; idx < live.size(); ++idx) {
        const int64_t b = live[idx];
        Stop stop = stop_at(b, position, idx);
        if (accepts(b, position, idx, &stop)) {
          still_live.push_back(b);
        } else {
          stops.push_back(stop);
        }
      }
      draw(std::move(stops));
      live.swap(still_live);
    }
  }

  // The block rule of Sun et al. 2024 (arXiv 2403.10444): every row is read, the longest accepted
  // block wins.
  void block_rule() {
    const int64_t batch = ragged_.batch_size;
    std::vector<std::vector<RowLaw>> targets(batch);
    std::vector<std::vector<RowStats>> drafts(batch);
    std::vector<std::vector<float>> leaked(batch);
    std::vector<int64_t> live(batch);
    for (int64_t b = 0; b < batch; ++b) live[b] = b;
    std::vector<float> prefix(batch, 1.0f);  // P_i of the walk
    std::vector<std::vector<float>> prefixes(batch, std::vector<float>{1.0f});
    std::vector<Stop> stops(batch);
    std::vector<int64_t> accepted(batch, 0);
    for (int64_t position = 0; !live.empty(); ++position) {
      target_laws(live, position);
      draft_laws(live, position);
      const std::vector<double> residual_masses = residual_mass(live, position, prefix);
      std::vector<int64_t> still_live;
      for (size_t idx = 0; idx < live.size(); ++idx) {
        const int64_t b = live[idx];
        targets[b].push_back(target_laws_[idx]);
        drafts[b].push_back(draft_stats_[idx]);
        leaked[b].push_back(leaked_mass_[idx]);
        const bool bad_row = flag_target(b, idx);
        float target_prob = 0.0f, draft_prob = 0.0f;
        const bool has_next = !bad_row && position < num_drafts_[b] &&
                              draft_token_is_sound(b, position, idx, &target_prob, &draft_prob);
        // The block that ends here, x_1..x_position, competes with h_position; h_0 is never asked
        // for.
        const bool is_last = !has_next;
        if (position > 0) {
          const double sum = residual_masses[idx], walked = prefix[b];
          const double denominator = sum + 1.0 - walked;
          const double h = is_last ? walked : (denominator > 0.0 ? sum / denominator : 1.0);
          const int64_t row = target_row(ragged_, b, position - 1);
          if (accept_uniform(in_.uniforms, b, row, position - 1) < h) accepted[b] = position;
        }
        if (is_last) {
          const int64_t tau = accepted[b];
          const bool whole = tau == position;
          stops[b] = {b,
                      tau,
                      whole ? Draw::kTarget : Draw::kResidual,
                      prefixes[b][tau],
                      targets[b][tau],
                      drafts[b][tau],
                      leaked[b][tau],
                      nullptr};
          continue;
        }
        const double ratio = static_cast<double>(prefix[b]) * target_prob / draft_prob;
        prefix[b] = static_cast<float>(std::min(ratio, 1.0));
        prefixes[b].push_back(prefix[b]);
        still_live.push_back(b);
      }
      live.swap(still_live);
    }
    for (int64_t b = 0; b < batch; ++b) {
      out_.num_accepted_tokens[b] = static_cast<int32_t>(accepted[b]);
      for (int64_t i = 0; i < accepted[b]; ++i) output(b)[i] = draft_token(b, i);
    }
    draw(std::move(stops));
  }

 private:
  int64_t width() const { return ragged_.max_draft_tokens + 1; }
  int32_t* output(int64_t b) const { return out_.output_token_ids + b * width(); }
  int64_t draft_row(int64_t b, int64_t position) const {
    return first_token(ragged_, b) + position;
  }
  int32_t draft_token(int64_t b, int64_t position) const {
    return ragged_.draft_token_ids[draft_row(b, position)];
  }
  static float non_negative(float prob) { return prob < 0.0f ? 0.0f : prob; }  // NaN is kept
  bool in_vocabulary(int32_t id) const { return id >= 0 && id < in_.target.vocab_size; }

  Stop stop_at(int64_t b, int64_t position, size_t idx) const {
    const int64_t chunks = num_chunks(in_.target.vocab_size);
    return {b,
            position,
            Draw::kTarget,
            1.0f,
            target_laws_[idx],
            draft_stats_[idx],
            leaked_mass_[idx],
            &target_sums_[idx * chunks]};
  }

  // Laws of one position's rows of the live requests, in their order.
  void target_laws(const std::vector<int64_t>& live, int64_t position) {
    target_laws_.resize(live.size());
    if (in_.are_probs) return prob_rows(live, position);
    std::vector<RowRequest> rows;
    for (const int64_t b : live) rows.push_back({target_row(ragged_, b, position), params_[b]});
    compute_row_laws(in_.target, rows.data(), static_cast<int64_t>(rows.size()), false, parallel_,
                     &target_sums_, target_laws_.data());
  }

  // Rows of probabilities are summed whole before anything of them is believed: a NaN anywhere is
  // flagged. The sums serve a bonus draw.
  void prob_rows(const std::vector<int64_t>& live, int64_t position) {
    const int64_t chunks = num_chunks(in_.target.vocab_size);
    target_sums_.resize(live.size() * chunks);
    const int64_t tasks = static_cast<int64_t>(target_sums_.size());
    parallel_for(parallel_, tasks, kDrawGrain, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t row = target_row(ragged_, live[task / chunks], position);
        target_sums_[task] = {0.0f,
                              target_probs(in_.target.row(row), task % chunks, chunk_buffer())};
      }
    });
    for (size_t idx = 0; idx < live.size(); ++idx) {
      double total = 0.0;
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        total += target_sums_[idx * chunks + chunk].sum;
      const RowStats stats = !std::isfinite(total) ? invalid_stats()
                             : total > 0.0         ? RowStats{0.0f, 1.0f, 0.0f, -INFINITY}
                                                   : empty_stats(1.0f);
      target_laws_[idx] = {stats, 0.0, total};
    }
  }

  // One chunk of a row of probabilities; negative entries count as 0, NaN is kept.
  float target_probs(const LogitRow& row, int64_t chunk, float* out) const {
    const float* probs = static_cast<const float*>(row.chunk(chunk));
    const int n = row.chunk_size(chunk);
    for (int i = 0; i < n; ++i) out[i] = non_negative(probs[i]);
    return kernels_.sum(out, n);
  }

  void draft_laws(const std::vector<int64_t>& live, int64_t position) {
    draft_stats_.assign(live.size(), RowStats{0.0f, 1.0f, 0.0f, -INFINITY});
    leaked_mass_.assign(live.size(), 0.0f);
    if (!in_.has_draft_law || in_.are_probs) return;
    make_draft_stats(live, position);
    if (in_.kernel.needs_coefficients()) {
      if (!in_.draft_leaked_mass) make_coefficients(live, position);
    } else if (in_.kernel.is_given()) {
      leaked_masses(live, position);
    }
  }

  // The coefficients of a low-rank kernel, of one position's draft rows together: they share the
  // reads of the factors.
  void make_coefficients(const std::vector<int64_t>& live, int64_t position) {
    const int64_t width = in_.kernel.low_rank.row_width();
    coefficients_.resize(static_cast<size_t>(ragged_.num_tokens * width));
    std::vector<DraftRow> drafts;
    std::vector<float*> coefficients;
    for (size_t idx = 0; idx < live.size(); ++idx) {
      const int64_t b = live[idx];
      const RowStats& stats = draft_stats_[idx];
      if (position >= num_drafts_[b] || is_invalid(stats) || is_empty(stats)) continue;
      drafts.push_back(draft_of(b, position, stats));
      coefficients.push_back(&coefficients_[draft_row(b, position) * width]);
    }
    draft_coefficients(in_.kernel, drafts, parallel_, coefficients.data(), nullptr);
  }

  const float* coefficients_of(int64_t draft_row) const {
    if (!in_.kernel.needs_coefficients()) return nullptr;
    const float* all = in_.draft_leaked_mass ? in_.draft_leaked_mass : coefficients_.data();
    return all + draft_row * in_.kernel.low_rank.row_width();
  }

  void make_draft_stats(const std::vector<int64_t>& live, int64_t position) {
    std::vector<RowRequest> rows;
    std::vector<size_t> places;
    for (size_t idx = 0; idx < live.size(); ++idx) {
      const int64_t b = live[idx];
      if (position >= num_drafts_[b]) continue;
      if (in_.draft_stats) {
        draft_stats_[idx] = in_.draft_stats[draft_row(b, position)];
      } else {
        rows.push_back({draft_row(b, position), params_[b]});
        places.push_back(idx);
      }
    }
    if (rows.empty()) return;
    std::vector<RowLaw> laws(rows.size());
    compute_row_laws(in_.draft, rows.data(), static_cast<int64_t>(rows.size()), false, parallel_,
                     &draft_sums_, laws.data());
    for (size_t i = 0; i < places.size(); ++i) draft_stats_[places[i]] = laws[i].stats;
  }

  // What leaks of each draft row: saved, constant, or summed over the row.
  void leaked_masses(const std::vector<int64_t>& live, int64_t position) {
    const bool is_saved = in_.draft_leaked_mass && in_.kernel.needs_leaked_mass();
    parallel_for(parallel_, static_cast<int64_t>(live.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t idx = begin; idx < end; ++idx) {
        const int64_t b = live[idx];
        if (position >= num_drafts_[b]) continue;
        leaked_mass_[idx] = is_saved
                                ? in_.draft_leaked_mass[draft_row(b, position)]
                                : leaked_mass(in_.kernel, draft_of(b, position, draft_stats_[idx]));
      }
    });
  }

  DraftRow draft_of(int64_t b, int64_t position, const RowStats& stats) const {
    const int64_t row = draft_row(b, position);
    return {in_.draft.row(row), stats, in_.target_to_draft_ids, coefficients_of(row)};
  }
  bool is_redistributed() const { return in_.kernel.is_given() && !in_.kernel.is_identity(); }

  // A target row that is no law: flagged, and the request ends there with a valid id.
  bool flag_target(int64_t b, size_t idx) {
    const RowStats& stats = target_laws_[idx].stats;
    if (is_invalid(stats)) {
      if (!(out_.status[b] & kInvalidParameter)) out_.status[b] |= kTargetNan;
      return true;
    }
    if (is_empty(stats)) out_.status[b] |= kTargetEmpty;
    return is_empty(stats);
  }

  // Probabilities of the drafted token; false (and flagged) where the draft breaks its contract.
  bool draft_token_is_sound(int64_t b, int64_t position, size_t idx, float* target_prob,
                            float* draft_prob) {
    const int32_t token = draft_token(b, position);
    if (!in_vocabulary(token)) {
      out_.status[b] |= kDraftOutOfRange;
      return false;
    }
    *target_prob = target_prob_of(b, position, token, idx);
    *draft_prob = draft_prob_of(b, position, token, idx);
    if (!(*draft_prob > 0.0f)) {
      out_.status[b] |= kDraftZero;
      return false;
    }
    return true;
  }

  float target_prob_of(int64_t b, int64_t position, int32_t token, size_t idx) const {
    const float value = in_.target.row(target_row(ragged_, b, position)).at(token);
    return in_.are_probs ? non_negative(value) : law_prob(target_laws_[idx].stats, value, token);
  }

  float draft_prob_of(int64_t b, int64_t position, int32_t token, size_t idx) const {
    if (!in_.has_draft_law) return 1.0f;
    if (is_redistributed()) {
      return rdk_prob_at(in_.kernel, draft_of(b, position, draft_stats_[idx]), leaked_mass_[idx],
                         token);
    }
    const int64_t id = in_.target_to_draft_ids ? in_.target_to_draft_ids[token] : token;
    if (id < 0 || id >= in_.draft.vocab_size) return 0.0f;
    const float value = in_.draft.row(draft_row(b, position)).at(id);
    return in_.are_probs ? non_negative(value) : law_prob(draft_stats_[idx], value, id);
  }

  // One step of the token rule; on a stop, `stop` says what to draw.
  bool accepts(int64_t b, int64_t position, size_t idx, Stop* stop) {
    if (flag_target(b, idx) || position >= num_drafts_[b]) return false;
    float target_prob = 0.0f, draft_prob = 0.0f;
    const bool sound = draft_token_is_sound(b, position, idx, &target_prob, &draft_prob);
    // Strictly less, with a uniform in [0, 1): a token that the target excludes is never accepted.
    const double uniform =
        accept_uniform(in_.uniforms, b, target_row(ragged_, b, position), position);
    if (sound && uniform * draft_prob < static_cast<double>(target_prob)) {
      output(b)[position] = draft_token(b, position);
      out_.num_accepted_tokens[b] = static_cast<int32_t>(position + 1);
      return true;
    }
    // A draft outside the vocabulary says nothing about the draft law: the target law is drawn
    // from.
    if (in_vocabulary(draft_token(b, position))) stop->draw = Draw::kResidual;
    return false;
  }

  // ---- draws
  // -------------------------------------------------------------------------------------------------

  // Weights of one chunk of the row where a request stops; returns their sum.
  float weights(const Stop& stop, Draw draw, int64_t chunk, float* out) const {
    const int64_t b = stop.request_idx;
    const LogitRow row = in_.target.row(target_row(ragged_, b, stop.position));
    const int n = row.chunk_size(chunk);
    const float sum = in_.are_probs ? target_probs(row, chunk, out)
                                    : target_chunk_probs(row, stop.target.stats, chunk, out);
    if (draw == Draw::kTarget) return sum;
    if (!in_.has_draft_law) {
      return subtract_one_hot_chunk(draft_token(b, stop.position), stop.scale, chunk, n, out);
    }
    if (is_redistributed()) {
      return subtract_rdk_chunk(in_.kernel, draft_of(b, stop.position, stop.draft),
                                stop.leaked_mass, spread_of(stop, chunk, n), stop.scale, chunk, n,
                                out);
    }
    const LogitRow draft = in_.draft.row(draft_row(b, stop.position));
    if (in_.are_probs) {
      const float* probs = static_cast<const float*>(draft.chunk(chunk));
      for (int i = 0; i < n; ++i)
        out[i] = residual_weight(stop.scale, out[i], non_negative(probs[i]));
      return kernels_.sum(out, n);
    }
    return subtract_draft_chunk(draft, stop.draft, in_.target_to_draft_ids, stop.scale, chunk, n,
                                out);
  }

  // Mass of (P_i target - draft)+ at one position of the live requests, for the block rule.
  std::vector<double> residual_mass(const std::vector<int64_t>& live, int64_t position,
                                    const std::vector<float>& prefix) {
    std::vector<Stop> rows;
    std::vector<size_t> places;
    for (size_t idx = 0; idx < live.size(); ++idx) {
      if (position >= num_drafts_[live[idx]]) continue;  // the last row: its h needs no residual
      Stop row = stop_at(live[idx], position, idx);
      row.draw = Draw::kResidual;
      row.scale = prefix[live[idx]];
      rows.push_back(row);
      places.push_back(idx);
    }
    const int64_t chunks = num_chunks(in_.target.vocab_size);
    std::vector<double> masses(rows.size() * chunks), totals(live.size(), 0.0);
    const std::vector<float> spread = spread_masses(&rows);
    chunk_masses(rows, &masses);
    for (size_t row = 0; row < rows.size(); ++row) {
      for (int64_t chunk = 0; chunk < chunks; ++chunk)
        totals[places[row]] += masses[row * chunks + chunk];
    }
    return totals;
  }

  bool is_law(const Stop& stop) const {
    return !(is_invalid(stop.target.stats) || is_empty(stop.target.stats));
  }

  // Mass of each chunk of each row; 0 for rows that are no law.
  void chunk_masses(const std::vector<Stop>& stops, std::vector<double>* masses) {
    const int64_t chunks = num_chunks(in_.target.vocab_size);
    masses->assign(stops.size() * chunks, 0.0);
    // Rows share a read of a low-rank kernel's factors; else a row stays in the cache.
    const bool by_chunk = in_.kernel.needs_coefficients();
    const int64_t size = static_cast<int64_t>(stops.size());
    parallel_for(parallel_, static_cast<int64_t>(masses->size()), kDrawGrain,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t task = begin; task < end; ++task) {
                     const int64_t idx = by_chunk ? task % size : task / chunks;
                     const int64_t chunk = by_chunk ? task / size : task % chunks;
                     const Stop& stop = stops[idx];
                     if (!is_law(stop)) continue;
                     (*masses)[idx * chunks + chunk] = chunk_mass(stop, stop.draw, chunk);
                   }
                 });
  }

  double chunk_mass(const Stop& stop, Draw draw, int64_t chunk) const {
    const RowStats& stats = stop.target.stats;
    // The pass that made the law left the sums of an untruncated row: a bonus reads one more chunk
    // only.
    if (draw == Draw::kTarget && stop.sums && !is_truncated(stats) && !is_greedy(stats)) {
      return in_.are_probs ? stop.sums[chunk].sum : chunk_mass_of(stop.sums[chunk], stats);
    }
    if (draw == Draw::kResidual && in_.has_draft_law && !in_.are_probs) {
      const int64_t b = stop.request_idx;
      if (is_redistributed()) {
        const LogitRow target = in_.target.row(target_row(ragged_, b, stop.position));
        return rdk_residual_chunk_sum(
            target, stats, in_.kernel, draft_of(b, stop.position, stop.draft), stop.leaked_mass,
            spread_of(stop, chunk, target.chunk_size(chunk)), stop.scale, chunk, chunk_buffer());
      }
      return residual_chunk_sum(in_.target.row(target_row(ragged_, b, stop.position)), stats,
                                in_.draft.row(draft_row(b, stop.position)), stop.draft,
                                in_.target_to_draft_ids, stop.scale, chunk, chunk_buffer());
    }
    return weights(stop, draw, chunk, chunk_buffer());
  }

  // Fills in the spread masses of the residuals, and returns the memory that holds them.
  std::vector<float> spread_masses(std::vector<Stop>* stops) {
    std::vector<float> masses;
    if (!is_redistributed() || !in_.kernel.spread) return masses;
    std::vector<Stop*> residuals;
    for (Stop& stop : *stops) {
      if (stop.draw == Draw::kResidual && is_law(stop)) residuals.push_back(&stop);
    }
    if (residuals.empty()) return masses;
    if (!sources_) sources_.emplace(in_.kernel, in_.target_to_draft_ids);
    if (sources_->size() == 0) return masses;
    masses.resize(residuals.size() * sources_->size());
    parallel_for(parallel_, static_cast<int64_t>(residuals.size()), 1,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t idx = begin; idx < end; ++idx) {
                     Stop& stop = *residuals[idx];
                     float* out = &masses[idx * sources_->size()];
                     sources_->masses(draft_of(stop.request_idx, stop.position, stop.draft), out);
                     stop.spread_masses = out;
                   }
                 });
    return masses;
  }

  const float* spread_of(const Stop& stop, int64_t chunk, int n) const {
    return stop.spread_masses ? sources_->chunk(stop.spread_masses, chunk, n) : nullptr;
  }

  // Draws the token of every stopped request.
  void draw(std::vector<Stop> stops) {
    const int64_t size = static_cast<int64_t>(stops.size());
    const int64_t chunks = num_chunks(in_.target.vocab_size);
    std::vector<double> masses(stops.size() * chunks);
    const std::vector<float> spread = spread_masses(&stops);
    chunk_masses(stops, &masses);
    parallel_for(parallel_, size, 1, [&](int64_t begin, int64_t end) {
      for (int64_t idx = begin; idx < end; ++idx) emit(stops[idx], &masses[idx * chunks]);
    });
  }

  void emit(const Stop& stop, double* masses) {
    const int64_t b = stop.request_idx;
    int32_t* token = output(b) + stop.position;
    const LogitRow row = in_.target.row(target_row(ragged_, b, stop.position));
    if (!is_law(stop)) {
      *token = static_cast<int32_t>(is_empty(stop.target.stats) ? 0 : lowest_argmax(row));
      return;
    }
    Draw draw = stop.draw;
    int64_t id = pick(stop, draw, masses);
    if (id < 0 && draw == Draw::kResidual) {
      // No mass left (target and draft are equal but for rounding), or a draft row that is no law.
      out_.status[b] |= draft_is_broken(stop) ? kDraftZero : kResidualEmpty;
      draw = Draw::kTarget;
      for (int64_t chunk = 0; chunk < num_chunks(row.vocab_size); ++chunk) {
        masses[chunk] = chunk_mass(stop, draw, chunk);
      }
      id = pick(stop, draw, masses);
    }
    *token = static_cast<int32_t>(id);
  }

  // A draft row with NaN or an infinite probability is no law.
  bool draft_is_broken(const Stop& stop) const {
    if (!in_.has_draft_law) return false;
    if (!in_.are_probs) return is_invalid(stop.draft);
    const LogitRow draft = in_.draft.row(draft_row(stop.request_idx, stop.position));
    for (int64_t chunk = 0; chunk < num_chunks(draft.vocab_size); ++chunk) {
      const float* probs = static_cast<const float*>(draft.chunk(chunk));
      if (!std::isfinite(kernels_.sum(probs, draft.chunk_size(chunk)))) return true;
    }
    return false;
  }

  // Inverse CDF in vocabulary order: the chunk first, then only that chunk again. -1 if there is no
  // finite mass.
  int64_t pick(const Stop& stop, Draw draw, const double* masses) const {
    const int64_t chunks = num_chunks(in_.target.vocab_size);
    double total = 0.0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) total += masses[chunk];
    if (!(total > 0.0) || !std::isfinite(total)) return -1;
    const int64_t row = target_row(ragged_, stop.request_idx, stop.position);
    const double goal =
        total * resample_uniform(in_.uniforms, stop.request_idx, row, stop.position);
    double passed = 0.0;
    const int64_t chosen = pick_chunk(masses, chunks, goal, &passed);
    float* buffer = chunk_buffer();
    weights(stop, draw, chosen, buffer);
    const LogitRow logits = in_.target.row(row);
    const int within = pick_in_chunk(buffer, logits.chunk_size(chosen), goal - passed);
    return within < 0 ? -1 : chosen * kChunk + within;
  }

  const Ragged& ragged_;
  const VerifyInputs& in_;
  const VerifyOutputs& out_;
  const Parallel& parallel_;
  const RowKernels& kernels_;
  std::vector<int64_t> num_drafts_;
  std::vector<RequestParams> params_;
  std::vector<RowLaw> target_laws_;
  std::vector<RowStats> draft_stats_;
  std::vector<float> leaked_mass_;
  std::vector<float> coefficients_;  // [N, n + 1] of a low-rank kernel, where they are made here
  std::vector<ChunkSum> target_sums_, draft_sums_;
  std::optional<SpreadSources> sources_;  // once a residual needs them
};

}  // namespace

void verify(const Ragged& ragged, const VerifyInputs& inputs, const VerifyOutputs& outputs,
            const Parallel& parallel) {
  if (ragged.batch_size == 0) return;
  Verifier verifier(ragged, inputs, outputs, parallel);
  if (inputs.rule == Rule::kToken) {
    verifier.token_rule();
  } else {
    verifier.block_rule();
  }
}

}  // namespace hetero_spec
