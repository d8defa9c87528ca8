// Reads JSON lines {name, formula, display} and sets each with MathJax 3; prints what is an error, and the widest one.
// npm install mathjax@3; python docs/tools/formulas.py | node docs/tools/mathjax.mjs
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

const require = createRequire(process.cwd() + '/');
const MathJax = await require('mathjax').init({ loader: { load: ['input/tex', 'output/svg'] }, svg: { fontCache: 'none' } });
let count = 0, errors = 0, widest = [0, ''], seen = new Set();
for await (const line of createInterface({ input: process.stdin })) {
  const { name, formula, display } = JSON.parse(line);
  if (seen.has(formula)) continue;
  seen.add(formula);
  count += 1;
  const svg = MathJax.startup.adaptor.outerHTML(MathJax.tex2svg(formula, { display }));
  const width = parseFloat((svg.match(/width="([0-9.]+)ex"/) ?? [0, '0'])[1]);
  if (display && width > widest[0]) widest = [width, name, formula];
  if (svg.includes('data-mjx-error') || svg.includes('data-mml-node="merror"')) {
    errors += 1;
    console.log(`${name}: ${(svg.match(/data-mjx-error="([^"]*)"/) ?? [0, 'error'])[1]}: ${formula.slice(0, 200)}`);
  }
}
console.log(`${count} formulas, ${errors} errors; the widest is ${widest[0].toFixed(0)} ex (${widest[1]})`);
if (process.env.WIDEST) console.log(widest[2]);
process.exit(errors ? 1 : 0);
