#!/usr/bin/env python3
"""Breaks the code on purpose, one place at a time, and checks that the tests named beside it notice.

    tools/mutants.py [FILTER]        only those whose description contains FILTER

Works on a copy of the tracked files in a temporary folder (its build goes to target/mutants); exits with 1 if a mutant
survives or no longer applies. Takes about half a minute a mutant.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PICK = "src/device/cpu/sample/pick.rs"
LABOR = "src/device/cpu/sample/labor.rs"

# Description, file, text found exactly once, replacement, the tests that must fail (arguments of `cargo test`).
MUTANTS = [
    ("Floyd draws below j, not up to j", PICK, "self.draw(vertex, draw, last + 1)", "self.draw(vertex, draw, last.max(1))",
     "--lib all_subsets_of_a_row_are_equally_likely"),
    ("k = 1 never takes the last neighbour", PICK, "let last = degree - self.fanout + draw as u64;",
     "let last = degree - self.fanout + draw as u64 - u64::from(self.fanout == 1);",
     "--lib all_subsets_of_a_row_are_equally_likely"),
    ("edges of weight zero are taken", PICK, "let positive = |edge: &u64| self.weight[*edge as usize] > 0.0;",
     "let positive = |edge: &u64| self.weight[*edge as usize] >= 0.0;", "--lib edges_without_weight_are_never_kept"),
    ("LABOR-0 keeps too few", PICK, ".div_ceil(u128::from(degree)) as u64\n", ".div_ceil(u128::from(degree + 1)) as u64\n",
     "--lib labor_keeps_min_of_fanout_and_degree_in_expectation"),
    ("LABOR-* does not iterate", LABOR, "while iterations != LaborIterations::Fixed(done) {",
     "while done > 1_000_000_u32 && iterations != LaborIterations::Fixed(done) {",
     "--lib more_iterations_need_fewer_sources"),
    ("LABOR's weights are not normalised", LABOR, "|edge| inverse(edge) / sum", "|edge| inverse(edge) + 0.0 * sum",
     "--lib all_weights_sum_to_one"),
    ("LABOR's estimates are biased", LABOR, "let inverse = |edge: &u64| 1.0 / probability(edge - start);",
     "let inverse = |_: &u64| 1.0;", "--lib estimates_are_unbiased"),
    ("an id equal to the number of vertices passes", "src/device/cpu/sample.rs", "vertex as usize >= n_vertices)",
     "vertex as usize > n_vertices)", "--lib ids_out_of_range_are_refused"),
    ("repeated seeds are kept", "src/sample/sampler.rs", "let (unique, seed_row) = merge_repeats(seeds);",
     "let (unique, seed_row) = (seeds.to_vec(), None::<Vec<u32>>);", "--lib repeated_seeds_are_merged"),
    ("new sources stand before earlier ones", "src/device/cpu/sample/lists.rs", "self.indices.extend(self.sources.iter().map(",
     "self.indices.extend(self.sources.iter().rev().map(", "--lib fast_samplers_equal_the_naive_ones"),
    ("workspaces are not cleared between blocks", "src/device/cpu/sample/lists.rs", "        self.edge_id.clear();\n", "",
     "--lib used_workspaces_leave_no_trace"),
    ("NS's expected sizes are off", PICK, "let fanout = self.fanout as usize;\n        let n_words",
     "let fanout = (self.fanout as usize).div_ceil(2);\n        let n_words", "--lib samplers_reach_the_expected_number"),
    ("dependent variates do not move", "src/rng/variates.rs", "math::sin_cos_quarter(step as f64 / steps as f64)",
     "math::sin_cos_quarter(0.0 * step as f64 / steps as f64)", "--lib correlation_falls_as_a_cosine"),
    ("dependent variates are blended linearly", "src/rng/variates.rs", "let (sin, cos) = math::sin_cos_quarter(step as f64 / steps as f64);",
     "let sin = step as f64 / steps as f64;\n            let cos = 1.0 - sin;", "--lib every_step_is_uniform"),
    ("kappa = inf changes windows", "src/rng/variates.rs", "Kappa::Infinite => (0, 0, 1)",
     "Kappa::Infinite => (batch, 0, 1)", "--lib kappa_infinite_constant"),
    ("the maximum goes to the last of equals", "src/device/cpu/spmm/max.rs", "let greater = x[k] > max[k];", "let greater = x[k] >= max[k];",
     "--lib max"),
    ("the mean over neighbours is their sum", "src/tape/aggregate.rs", "Aggregate::Mean => block.mean_weights(device),",
     "Aggregate::Mean => Ok(Weights::ones()),", "--test integration golden_layers"),
    ("f16 sums are rounded to f16", "src/device/storage.rs", "f16: F16, f16::to_f32, f16::to_f64;",
     "f16: F16, |v: f16| f16::from_f32(v.to_f32() * 1.001).to_f32(), f16::to_f64;", "--lib f16"),
    ("SpMM leaves out a row's last edge", "src/device/cpu/spmm.rs",
     "add_terms(self.terms, self.entries.clone(), column, &mut sum);",
     "add_terms(self.terms, self.entries.start..self.entries.end.max(self.entries.start + 1) - 1, column, &mut sum);",
     "--lib spmm"),
    ("SpMM's order hangs on the number of threads", "src/device/cpu/spmm.rs",
     "add_terms(self.terms, self.entries.clone(), column, &mut sum);",
     "let first = (self.entries.start + rayon::current_num_threads() - 1).min(self.entries.end);\n        "
     "add_terms(self.terms, first..self.entries.end, column, &mut sum);", "--lib threads"),
    ("aggregation's gradient ignores the transpose's factors", "src/tape/aggregate.rs",
     "let transposed = Weights { edge, row: column, column: row };", "let transposed = Weights { edge, row: None, column: row.and(None) };\n        let _ = column;",
     "--lib agrees_with_finite_differences"),
    ("a layer's own weight gets the neighbours' input", "src/nn/sage.rs", "tape.linear(&[(own, w_self), (neighbors, w_neighbor)], bias, activation)",
     "tape.linear(&[(neighbors, w_self), (neighbors, w_neighbor)], bias, activation)", "--test integration golden_layers"),
    ("batch norm's gradient misses its statistics", "src/tape/batch_norm.rs", "let n_total = if from_batch { n } else { 0 };",
     "let n_total = 0; let _ = from_batch;", "--lib agrees_with_finite_differences"),
    ("dropout draws another mask in the backward pass", "src/tape/dropout.rs",
     "Ok(vec![Some(self.mask(device, &step.gradient)?)])",
     "self.seed += 1;\n        Ok(vec![Some(self.mask(device, &step.gradient)?)])", "--lib agrees_with_finite_differences"),
    ("nll's gradient forgets the factor", "src/tape/nll.rs", "            self.factor,\n            step.gradient.view(),",
     "            1.0,\n            step.gradient.view(),", "--lib agrees_with_finite_differences"),
    ("batches come as they are done", "src/train/pipeline.rs", "state.ready.remove(&item)",
     "state.ready.pop_first().map(|(_, r)| r)", "--lib items_come_in_order"),
    ("a panic is not caught", "src/train/pipeline.rs", "catch_unwind(AssertUnwindSafe(|| (self.work)(item)))",
     "Ok::<_, Box<dyn Any + Send>>((self.work)(item))", "--lib a_panic_is_an_error"),
    ("workers run without bound", "src/train/pipeline.rs", "self.n_items.min(state.delivered + self.depth)",
     "self.n_items.min(state.delivered + 1000 * self.depth)", "--lib at_most_depth"),
    ("the optimiser's step is not resumed", "src/train/checkpoint.rs", "self.optimizer.load_state(info.step, state)?;",
     "self.optimizer.load_state(0 * info.step, state)?;",
     "--test integration a_resumed_run_continues"),
    ("an epoch's order hangs on the workers", "src/train/trainer.rs", "Batches::new(train_idx, batch_size, self.config.seed)?",
     "Batches::new(train_idx, batch_size, self.config.workers as u64)?",
     "--test integration results_do_not_depend"),
    ("patience is not heeded", "src/train/trainer.rs", "self.stall.epochs >= patience", "self.stall.epochs > 5 * patience",
     "--test integration patience"),
    ("an edge softmax is not shifted by the maximum", "src/device/cpu/attention/softmax.rs",
     "map_heads(row, &max, |value, max| value - max);", "map_heads(row, &max, |value, _| value);",
     "--lib softmax"),
    ("attention leaves out the destination's score", "src/device/cpu/attention/gat.rs", "weights[h] = leaky(score[h] + own[h], scores.slope);",
     "weights[h] = leaky(score[h] + S::zero() * own[h], scores.slope);", "--lib attention"),
    ("ties do not share their ranks", "src/train/metrics.rs", "(ties.len() as f64 + 1.0) / 2.0", "ties.len() as f64", "--lib auc"),
    ("sums over PEs are not in rank order", "src/comm/threads.rs", "for rank in 1..n_pes {", "for rank in (1..n_pes).rev() {",
     "--lib reductions_have_the_bits"),
    ("PEs that leave wake nobody", "src/comm/rendezvous.rs", "if let Some((other, call)) = waiting {",
     "if let Some((other, call)) = waiting.filter(|_| false) {", "--lib dropped_handles"),
    ("failures do not reach duplicates", "src/comm/rendezvous.rs", "for group in self.groups() {\n            // Once",
     "for group in self.groups().into_iter().take(1) {\n            // Once", "--lib failures_reach_duplicates"),
    ("PEs' calls are not compared", "src/comm/rendezvous.rs", "if let Some(odd) = odd_one(&calls, number) {",
     "if let Some(odd) = odd_one(&calls, number).filter(|_| false) {", "--lib other_collectives_fail"),
    ("PEs' counts are not compared", "src/comm/rendezvous.rs", "    blame(&reports, number)\n}",
     "    blame(&reports, number).filter(|_| false)\n}", "--lib wrong_sizes_fail"),
    ("what stays on a PE counts as sent", "src/comm/communicator.rs", "filter(move |&other| other != rank)",
     "filter(move |&other| other != rank || rank == 0)", "--lib statistics_are_exact"),
]


def run(folder, target, arguments):
    command = ["cargo", "test", "--quiet", "--offline", *arguments.split()]
    # Unoptimised: most of the time is the compiler's.
    env = {**os.environ, "CARGO_TARGET_DIR": str(target), "RUST_BACKTRACE": "0", "CARGO_PROFILE_DEV_OPT_LEVEL": "0"}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900)


def main():
    chosen = [m for m in MUTANTS if len(sys.argv) < 2 or sys.argv[1].lower() in m[0].lower()]
    target = ROOT / "target" / "mutants"
    bad = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary) / "cohop"
        tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
        for name in filter(None, tracked):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        # Where the golden files are, if they are.
        (folder.parent / "shared").symlink_to(ROOT.parent / "shared")
        for description, name, old, new, tests in chosen:
            path = folder / name
            text = path.read_text()
            if text.count(old) != 1:
                verdict = f"DOES NOT APPLY: found {text.count(old)} times in {name}"
                bad += 1
            else:
                path.write_text(text.replace(old, new))
                result = run(folder, target, tests)
                path.write_text(text)
                output = result.stdout + result.stderr
                if "could not compile" in output:
                    verdict = "DOES NOT COMPILE\n" + output[-2000:]
                    bad += 1
                elif result.returncode == 0:
                    verdict = "SURVIVES"
                    bad += 1
                else:
                    verdict = "caught"
            print(f"{verdict:9} {description}  [cargo test {tests}]", flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
