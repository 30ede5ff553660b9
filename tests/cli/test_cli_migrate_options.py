"""feedwater migrate: when the default of an option of argparse is its value."""

from __future__ import annotations

import pytest
from migration import head, migrate, translated, write

PARSER = (
    "import argparse\nimport json\nimport logging\nimport sys\nimport yaml\nimport wandb\n"
    "import torch.multiprocessing as mp\n"
    "logger = logging.getLogger()\n"
    "p = argparse.ArgumentParser()\n"
    "p.add_argument('--size', type=int, default=8)\n"
    "p.add_argument('--mean', nargs=3, default=[0.5, 0.4, 0.3])\n"
)
ARGS = "args = p.parse_args()\n"


def loader(options: str = "args", indent: str = "") -> str:
    return (
        f"{indent}loader = DataLoader(datasets.ImageFolder('/d/x', transforms.Compose([\n"
        f"{indent}    transforms.CenterCrop({options}.size), transforms.ToTensor()])))\n"
    )


WRAPPED = "def improve(opt, path):\n{}\n"
CHANGED = {
    "defaults of a file": "p.set_defaults(**yaml.safe_load(open('c.yaml')))\n" + ARGS + loader(),
    "defaults of a file, later in the text": (
        f"def main():\n    {ARGS}{loader(indent='    ')}"
        "def setup():\n    p.set_defaults(**load())\nsetup()\nmain()\n"
    ),
    "vars()": ARGS + "vars(args).update(cfg)\n" + loader(),
    "vars() with a name": ARGS + "d = vars(args)\nd['size'] = 9\n" + loader(),
    "vars() in place": ARGS + "d = vars(args)\nd |= cfg\n" + loader(),
    "entries of vars()": ARGS + "vars(args)['size'] = 9\n" + loader(),
    "a method that is kept": ARGS + "change = args.__setattr__\nchange('size', 9)\n" + loader(),
    "defaults by a kept method": "change = p.set_defaults\nchange(size=9)\n" + ARGS + loader(),
    "defaults by a text": "getattr(p, 'set_defaults')(size=9)\n" + ARGS + loader(),
    "one of several": ARGS + "vars(max([args], key=id))['size'] = 9\n" + loader(),
    "a key of its own": (
        "def change(o):\n    o.size = 9\n" + ARGS + "sorted([args], key=change)\n" + loader()
    ),
    "__dict__": ARGS + "args.__dict__.update(cfg)\n" + loader(),
    "another __dict__": ARGS + "args.__dict__ = cfg\n" + loader(),
    "a second assignment": ARGS + "args = merge(args, 'c.yaml')\n" + loader(),
    "a second assignment to what is something else": ARGS + "args = Config('c.yaml')\n" + loader(),
    "a second assignment in a branch": ARGS + "if x:\n    args = load()\n" + loader(),
    "a second assignment by global": (
        f"def setup():\n    global args\n    args = load()\n{ARGS}setup()\n{loader()}"
    ),
    "an import of that name": "from config import args\n" + ARGS + loader(),
    "the script's own function": (
        WRAPPED.format("    opt.__dict__.update(read(path))")
        + ARGS + "improve(args, 'c.yaml')\n" + loader()
    ),
    "a function of its function": (
        "def inner(o):\n    vars(o).update(cfg)\n" + WRAPPED.format("    inner(o=opt)")
        + ARGS + "improve(args, 'c.yaml')\n" + loader()
    ),
    "a function that gives them back": (
        WRAPPED.format("    opt.__dict__.update(read(path))\n    return opt")
        + ARGS + "args = improve(args, 'c.yaml')\n" + loader()
    ),
    "a function that takes any arguments": (
        "def improve(*those):\n    those[0].__dict__.clear()\n"
        + ARGS + "improve(args)\n" + loader()
    ),
    "a function from elsewhere": "import utils\n" + ARGS + "utils.setup(args)\n" + loader(),
    "another name": ARGS + "opt = args\nopt.__dict__.update(cfg)\n" + loader(),
    "an attribute": (
        "class Run:\n    def __init__(self, options):\n        self.options = options\n"
        "    def setup(self):\n        self.options.__dict__.update(cfg)\n"
        + ARGS + "Run(args).setup()\n" + loader()
    ),
    "an attribute of theirs by another name": (
        WRAPPED.format("    opt.size = 9") + ARGS + "improve(args, 1)\n" + loader()
    ),
    "an attribute of a class with a base of another module": (
        "import mylib\nclass Run(mylib.Base):\n    def __init__(self, opt):\n"
        "        self.opt = opt\n        self.setup()\n" + ARGS + "Run(args)\n" + loader()
    ),
    "an attribute of a class with such a base far up": (
        "import mylib\nclass Base(mylib.Base):\n    pass\nclass Run(Base):\n"
        "    def __init__(self, opt):\n        self.opt = opt\n" + ARGS + "Run(args)\n" + loader()
    ),
    "an attribute of a module": "import mylib\n" + ARGS + "mylib.cfg = args\n" + loader(),
    "an attribute of what is another module's": (
        "import mylib\n" + ARGS + "run = mylib.Run()\nrun.args = args\n" + loader()
    ),
    "a list of a module": (
        "from mylib import known\n" + ARGS + "known.append(args)\n" + loader()
    ),
    "a dict of a module": (
        "import mylib\n" + ARGS + "mylib.known['args'] = args\n" + loader()
    ),
    "a function with a decorator": (
        "from mylib import deco\n@deco\ndef main(args):\n    pass\n"
        + ARGS + "main(args)\n" + loader()
    ),
    "a function that returns them, with a decorator": (
        "from mylib import deco\n@deco(1)\ndef get():\n    return p.parse_args()\n"
        "args = get()\n" + loader()
    ),
    "a class with a decorator": (
        "import mylib\n@mylib.known\nclass Run:\n    def __init__(self, opt):\n"
        "        self.size = opt.size\n" + ARGS + "Run(args)\n" + loader()
    ),
    "a list that holds them": ARGS + "several = [args]\nseveral[0].__dict__ = {}\n" + loader(),
    "entries of a list that holds them": (
        ARGS + "for each in [args, 1]:\n    merge(each)\n" + loader()
    ),
    "a method of theirs": ARGS + "args.merge_from_file('c.yaml')\n" + loader(),
    "exec": ARGS + "exec(open('configurator.py').read())\n" + loader(),
    "a command line of the script's": "args = p.parse_args(['--size', '9'])\n" + loader(),
    "a command line with a name": "argv = ['--size', '9']\nargs = p.parse_args(argv)\n" + loader(),
    "a command line that is put together": (
        "args = p.parse_args(sys.argv[1:] + ['--size', '9'])\n" + loader()
    ),
    "a command line of a text": "args = p.parse_args('--size 9'.split())\n" + loader(),
    "a command line of a text, named": (
        "args = p.parse_args(args='--size 9'.split(' '))\n" + loader()
    ),
    "a command line of a condition": (
        "args = p.parse_args(args=['--size=9'] if x else None)\n" + loader()
    ),
    "a command line of a comprehension": (
        "args = p.parse_args([word for word in words])\n" + loader()
    ),
    "a command line of the environment": (
        "argv = os.environ['OPTS'].split()\nargs = p.parse_args(argv)\n" + loader()
    ),
    "a command line that grows": (
        "argv = sys.argv[1:]\nargv.append('--size=9')\nargs = p.parse_args(argv)\n" + loader()
    ),
    "a command line of a parameter": (
        "def parse(argv):\n    return p.parse_args(argv)\n"
        "args = parse(['--size', '9'])\n" + loader()
    ),
    "a command line of a parameter's default": (
        "def parse(argv=['--size', '9']):\n    return p.parse_args(argv)\n"
        "args = parse()\n" + loader()
    ),
    "a command line of a parameter that others give": (
        f"def main(argv):\n    args = p.parse_args(argv)\n{loader(indent='    ')}"
    ),
    "sys.argv": "sys.argv = ['x', '--size', '9']\n" + ARGS + loader(),
    "sys.argv by setattr": "setattr(sys, 'argv', ['x'])\n" + ARGS + loader(),
    "sys.argv in place": "sys.argv += ['--size', '9']\n" + ARGS + loader(),
    "sys.argv by a method": "sys.argv.extend(['--size', '9'])\n" + ARGS + loader(),
    "sys.argv in parts": "sys.argv[1:] = ['--size', '9']\n" + ARGS + loader(),
    "sys.argv without a part": "del sys.argv[1:]\n" + ARGS + loader(),
    "sys.argv by another name": "argv = sys.argv\nargv.append('-x')\n" + ARGS + loader(),
    "sys.argv by its own name": (
        "from sys import argv\nargv.append('-x')\n" + ARGS + loader()
    ),
    "sys.argv for a while": (
        "with mock.patch.object(sys, 'argv', ['x', '--size', '9']):\n    " + ARGS + loader()
    ),
    "sys.argv for a while, by its full name": (
        "with mock.patch('sys.argv', ['x', '--size', '9']):\n    " + ARGS + loader()
    ),
    "sys.argv by a name that is not known": "setattr(sys, name, ['x'])\n" + ARGS + loader(),
    "sys.argv by another name of sys": "a = sys\na.argv.append('--size=9')\n" + ARGS + loader(),
    "sys.argv in a function of another module": (
        "import mylib\nmylib.setup(module=sys)\n" + ARGS + loader()
    ),
    "sys.argv by an argument with a name": (
        "from mylib import normalise\nnormalise(argv=sys.argv)\n" + ARGS + loader()
    ),
    "sys.argv in a dict": (
        "d = {'argv': sys.argv}\nd['argv'] += ['--size', '9']\n" + ARGS + loader()
    ),
    "sys.argv in a dict of a dict": (
        "improve(known={'a': {'argv': sys.argv}})\n" + ARGS + loader()
    ),
    "sys.argv in a dict that is made": (
        "dict(argv=sys.argv)['argv'].append('--size=9')\n" + ARGS + loader()
    ),
    "sys.argv in a function that is named like one that looks": (
        "def info(argv):\n    argv.append('--size=9')\ninfo(sys.argv)\n" + ARGS + loader()
    ),
    "actions of the parser": (
        "for action in p._actions:\n    action.default = 9\n" + ARGS + loader()
    ),
    "a parser in a function of another module": (
        "import common\ncommon.tweak(p)\n" + ARGS + loader()
    ),
    "a parser in a function that an argument with a name hands it to": (
        "from common import tweak\np = tweak(1, parser=p)\n" + ARGS + loader()
    ),
    "a parser in an own function that hands it on": (
        "import common\ndef add(parser):\n    common.tweak(parser)\nadd(p)\n" + ARGS + loader()
    ),
    "a parser in a function that is named like a method of parsers": (
        "import common\ncommon.set_defaults(p)\n" + ARGS + loader()
    ),
    "a parser in a function of such a name, with a name": (
        "import common\ncommon.set_defaults(parser=p)\n" + ARGS + loader()
    ),
    "a parser in a function of such a name by its own name": (
        "from common import set_defaults\nset_defaults(p)\n" + ARGS + loader()
    ),
    "a parser in an object of another module with such a method": (
        "import common\nhelper = common.Helper()\nhelper.set_defaults(parser=p)\n" + ARGS
        + loader()
    ),
    "a parser in a function that is named like one of the script's own": (
        "import common\nclass Run:\n    def setup(self, rank):\n        pass\ncommon.setup(p)\n"
        + ARGS + loader()
    ),
    "a parser in a loop": (
        "import common\nfor q in (p,):\n    common.setup(q)\n" + ARGS + loader()
    ),
    "a parser in a loop over pairs": (
        "import common\nfor name, *(q,) in [('a', p)]:\n    common.setup(q)\n" + ARGS + loader()
    ),
    "a parser in a comprehension": (
        "import common\n[common.setup(q) for q in (p,)]\n" + ARGS + loader()
    ),
    "parsers that a comprehension gives": (
        "import common\ncommon.setup([q for q in (p,)])\n" + ARGS + loader()
    ),
    "a parser that a generator gives": (
        "import common\ndef get():\n    yield p\nfor q in get():\n    common.setup(q)\n"
        + ARGS + loader()
    ),
    "a parser of a tuple": (
        "import common\npair = (p, 1)\nq, x = pair\ncommon.setup(q)\n" + ARGS + loader()
    ),
    "a parser by its place in a list": (
        "import common\nall = [p]\ncommon.setup(all[0])\n" + ARGS + loader()
    ),
    "a parser or another": "import common\ncommon.setup(q or p)\n" + ARGS + loader(),
    "a parser in an attribute of a module": (
        "import common\ncommon.PARSER = p\ncommon.setup()\n" + ARGS + loader()
    ),
    "a parser in an attribute of a module that is another by a condition": (
        "try:\n    import common\nexcept ImportError:\n    import other as common\n"
        "x = common.PARSER = p\ncommon.setup()\n" + ARGS + loader()
    ),
    "a parser in an attribute of another module's object": (
        "import common\nrun = common.Run()\nrun.parser, x = p, 1\nrun.setup()\n" + ARGS
        + loader()
    ),
    "a parser in a dict of a module": (
        "import common\ncommon.known['p'] = p\ncommon.setup()\n" + ARGS + loader()
    ),
    "a parser in a dict that is filled": (
        "import common\nd = {}\nd['p'] = p\ncommon.setup(d)\n" + ARGS + loader()
    ),
    "a parser in a list": "import common\ncommon.tweak([p])\n" + ARGS + loader(),
    "a parser in a dict": "import common\ncommon.tweak(all={'p': p})\n" + ARGS + loader(),
    "a parser that a function returns": (
        "import common\ndef get():\n    return p\ncommon.tweak(get())\n" + ARGS + loader()
    ),
    "a parser of self": (
        "import common\nclass Run:\n    def __init__(self):\n        self.parser = p\n"
        "        common.tweak(self.parser)\n        self.parser.parse_args()\n" + ARGS + loader()
    ),
    "a group of a parser": (
        "import common\ng = p.add_argument_group()\ng.add_argument('--x')\ncommon.tweak(g)\n"
        + ARGS + loader()
    ),
    "defaults of a parser": "p._defaults.update(size=9)\n" + ARGS + loader(),
    "another namespace": "args = p.parse_args(namespace=mine)\n" + loader(),
    "a file of the parser": (
        "q = configargparse.ArgParser(default_config_files=['c.yaml'])\n" + ARGS + loader()
    ),
    "a process that changes them": (
        "def work(rank, opt):\n    vars(opt).update(cfg)\n"
        + loader("opt", "    ") + ARGS + "mp.spawn(work, nprocs=2, args=(args,))\n"
    ),
    "a function that gets others, too": (
        f"def main(args):\n{loader(indent='    ')}{ARGS}main(args)\nmain(load())\n"
    ),
    "a parameter with a default": (
        "def main(args=DEFAULTS):\n" + loader(indent="    ") + ARGS + "main(args)\nmain()\n"
    ),
    "a parameter that nobody hands them": f"def main(args):\n{loader(indent='    ')}{ARGS}",
    "an option that a function converts": (
        "p.add_argument('--flag', type=str2bool, default='False')\n" + ARGS
        + loader().replace("args.size", "args.flag")
    ),
    "an option that must be given": (
        "p.add_argument('--side', type=int, default=9, required=True)\n" + ARGS
        + loader().replace("args.size", "args.side")
    ),
    "an argument that must be given": (
        "p.add_argument('side', type=int, default=9)\n" + ARGS
        + loader().replace("args.size", "args.side")
    ),
    "arguments of which one must be given": (
        "p.add_argument('side', nargs='+', default=[9, 9])\n" + ARGS
        + loader().replace("args.size", "args.side")
    ),
    "an option of a dict": (
        "p.add_argument('--fast', action='store_true', **more)\n" + ARGS
        + loader().replace("args.size", "args.fast")
    ),
    "a list that grows": (
        ARGS + "args.mean.reverse()\n" + loader().replace(
            "ToTensor()", "ToTensor(), transforms.Normalize(args.mean, [1., 1., 1.])")
    ),
    "a list that grows by another name": (
        ARGS + "others = args.mean\nothers.reverse()\n" + loader().replace(
            "ToTensor()", "ToTensor(), transforms.Normalize(args.mean, [1., 1., 1.])")
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", CHANGED.values(), ids=CHANGED)
def test_the_default_of_options_that_may_be_others_is_not_taken(project, body):
    done = migrate(write(project.folder, head(PARSER + body)), "--json")
    texts = [told["text"] for told in done.document["untranslated"]]
    assert done.status == 1 and done.document["diff"] == ""
    assert any("is not a literal" in text for text in texts), texts


def test_the_line_that_may_give_them_other_values_is_told(project):
    body = ARGS + "vars(args).update(cfg)\n" + loader()
    done = migrate(write(project.folder, head(PARSER + body)), "--json")
    texts = [told["text"] for told in done.document["untranslated"]]
    line = head(PARSER + body).split("\n").index("vars(args).update(cfg)") + 1
    assert any(f"args.size (line {line} may give" in text for text in texts), texts


def test_a_root_whose_default_may_be_another_is_a_name(project):
    body = (
        "p.add_argument('--data', default='/d/x')\n" + ARGS + "vars(args).update(cfg)\n"
        "loader = DataLoader(datasets.ImageFolder(args.data, transforms.ToTensor()))\n"
    )
    assert translated(project, PARSER + body)["dataset"]["root"] == "data"


READ = {
    "as they are": ARGS + loader(),
    "printed": ARGS + "print(args)\nlogger.info('%s', vars(args))\nlogger.info(f'{args}')\n"
    + loader(),
    "written": ARGS + "json.dump(vars(args), f)\nf.write(yaml.dump(args.__dict__))\n" + loader(),
    "tracked": (
        ARGS + "wandb.init(config=args)\nwandb.config.update(args)\nrun.config.update(vars(args))\n"
        "writer.add_text('args', str(args))\n" + loader()
    ),
    "gone through": (
        ARGS + "for k, v in sorted(vars(args).items()):\n    print(k, v)\n"
        "known = {k: v for k, v in args._get_kwargs()}\nassert 'size' in vars(args)\n" + loader()
    ),
    "looked at": (
        ARGS + "if hasattr(args, 'x') and getattr(args, 'y', 0):\n    copied = dict(vars(args))\n"
        "setattr(args, 'rank', 3)\nargs.gpu = 1\n" + loader()
    ),
    "handed over as arguments": ARGS + "model(**vars(args))\nmodel(args.size)\n" + loader(),
    "handed to main": f"def main(args):\n{loader(indent='    ')}main(p.parse_args())\n",
    "handed by another name": f"def main(opt):\n{loader('opt', '    ')}{ARGS}main(args)\n",
    "handed through functions": (
        "def show(o):\n    print(o.size)\n"
        f"def main(gpu, count, opt):\n    show(o=opt)\n{loader('opt', '    ')}"
        f"{ARGS}main(args.gpu, 3, args)\n"
    ),
    "handed to processes": (
        f"def work(gpu, count, args):\n    args.gpu = gpu\n{loader(indent='    ')}"
        f"{ARGS}mp.spawn(work, nprocs=2, args=(2, args))\nif x:\n    work(args.gpu, 2, args)\n"
    ),
    "of a function": (
        f"def get():\n    args = p.parse_args()\n    return args\ndef main():\n    args = get()\n"
        f"{loader(indent='    ')}main()\n"
    ),
    "global": (
        f"args = None\ndef main():\n    global args\n    args = p.parse_args()\n    work()\n"
        f"def work():\n{loader(indent='    ')}main()\n"
    ),
    "kept in an object": (
        "class Run:\n    def __init__(self, options):\n        self.options = options\n"
        "    def go(self):\n        print(self.options.size)\n"
        + ARGS + "Run(args).go()\n" + loader()
    ),
    "kept in objects of known classes": (
        "import abc\nclass Base(abc.ABC):\n    pass\nclass Run(Base, torch.nn.Module):\n"
        "    def __init__(self, opt):\n        self.opt = opt\n"
        "class Kept(dict):\n    pass\nkept = Kept()\n"
        + ARGS + "Run(args)\nkept.args = args\n" + loader()
    ),
    "handed to functions with known decorators": (
        "import functools\n@torch.no_grad()\n@functools.lru_cache\ndef show(opt):\n"
        "    print(opt.size)\nclass Run:\n    @staticmethod\n    def go(opt):\n"
        "        print(opt.size)\n" + ARGS + "show(args)\nRun().go(args)\n" + loader()
    ),
    "saved beside others": (
        "def save(state, path):\n    torch.save(state, path)\n"
        + ARGS + "save({'args': args, 'epoch': 1}, 'x')\nstate = {'args': vars(args)}\n"
        "state['epoch'] = 2\ntorch.save(state, 'y')\n" + loader()
    ),
    "of commands": (
        f"def train(args):\n{loader(indent='    ')}"
        "s = p.add_subparsers().add_parser('train')\ns.set_defaults(func=train)\n"
        + ARGS + "args.func(args)\n"
    ),
    "of a method": (
        "class Run:\n    def fit(self, args):\n        self.size = args.size\n"
        + ARGS + "model.train()\nRun().fit(args)\n" + loader()
    ),
    "of an own command line": "args = p.parse_args(sys.argv[1:])\n" + loader(),
    "of a command line with a name": (
        "argv = sys.argv[1:]\nargs = p.parse_args(args=argv)\n" + loader()
    ),
    "of a command line that a function may be given": (
        f"def main(argv=None):\n    args = p.parse_args(argv)\n{loader(indent='    ')}"
        "if __name__ == '__main__':\n    main(sys.argv[1:])\n"
    ),
    "of a command line that is shown": (
        "print(' '.join(sys.argv), len(sys.argv), sys.argv[0])\nfor word in sys.argv:\n"
        "    logger.info(word)\n" + ARGS + loader()
    ),
    "of a command line that is written": (
        "wandb.init(config={'argv': sys.argv})\njson.dump({'a': {'argv': sys.argv}}, f)\n"
        "print(*sys.argv, sep=' ')\nlogger.info('%s', extra={'argv': sys.argv})\n"
        "torch.save({'argv': sys.argv}, 'x')\n" + ARGS + loader()
    ),
    "of a parser that is handed on": (
        "import deepspeed\nimport pytorch_lightning as pl\nimport argcomplete\n"
        "class Net:\n    @staticmethod\n    def options(parser):\n"
        "        parser.add_argument('--depth')\n        return parser\n"
        "def more(parser):\n    parser.add_argument('--width')\n"
        "p = pl.Trainer.add_argparse_args(deepspeed.add_config_arguments(p))\n"
        "p = Net.options(p)\nmore(parser=p)\nargcomplete.autocomplete(p)\nprint(p)\n"
        "q = argparse.ArgumentParser(parents=[p])\nq.add_subparsers().add_parser('x', parents=[p])"
        "\n" + ARGS + loader()
    ),
    "of a parser that knows itself": (
        "p.set_defaults(parser=p)\ns = p.add_subparsers().add_parser('x', parents=[p])\n"
        "class Run:\n    def __init__(self):\n        self.parser = s\n"
        "        self.parser.set_defaults(run=self.parser)\n" + ARGS + loader()
    ),
    "of a parser that the script keeps": (
        "class Run:\n    def __init__(self, parser):\n        self.parser = parser\n"
        "    def add(self):\n        self.parser.add_argument('--x')\nRun(p).add()\n"
        "for q in (p, argparse.ArgumentParser()):\n    q.add_argument('--y')\n"
        "names = {'train': p}\nnames['train'].add_argument('--z')\n" + ARGS + loader()
    ),
    "beside other names of sys": (
        "print('sys.argv', sys.argv, sys.path)\nis_frozen = getattr(sys, 'frozen', False)\n"
        "with mock.patch.object(sys, 'stdout', log):\n    " + ARGS + loader()
    ),
    "of an empty command line": "args = p.parse_args([])\n" + loader(),
    "any arguments of another function": (
        "def any(*args, **more):\n    return other(*args, **more)\n" + ARGS + loader()
    ),
}  # fmt: skip


@pytest.mark.parametrize("body", READ.values(), ids=READ)
def test_the_default_of_options_that_are_only_read_is_taken(project, body):
    found = translated(project, PARSER + body)
    assert found["graph"][1] == {"center_crop": {"size": 8}}, found["notes"]["untranslated"]
    assert not found["notes"]["untranslated"]
    assert any("the default of line" in note["text"] for note in found["notes"]["notes"])


def test_that_options_are_added_elsewhere_is_told(project):
    body = PARSER + "import common\ncommon.add_options(p)\n" + ARGS + loader()
    found = translated(project, body)
    assert found["graph"][1] == {"center_crop": {"size": 8}}
    notes = [note["text"] for note in found["notes"]["notes"]]
    assert any("common.add_options(p) is taken to add options" in note for note in notes), notes


def test_the_default_of_an_argument_that_may_be_left_out_is_taken(project):
    for nargs in ("?", "*"):
        side = f"p.add_argument('side', nargs='{nargs}', type=int, default=9)\n"
        body = PARSER + side + ARGS + loader().replace("args.size", "args.side")
        assert translated(project, body)["graph"][1] == {"center_crop": {"size": 9}}


def test_a_default_is_converted_as_argparse_does(project):
    body = "p.add_argument('--side', type=int, default='9')\n" + ARGS
    found = translated(project, PARSER + body + loader().replace("args.size", "args.side"))
    assert found["graph"][1] == {"center_crop": {"size": 9}}


def test_a_list_among_the_defaults_that_is_only_read_is_taken(project):
    body = ARGS + "print(args.mean, args.mean[0])\nnormalize = transforms.Normalize(\n"
    body += "    args.mean, [1.0, 1.0, 1.0])\n"
    found = translated(project, PARSER + body + loader().replace("r()]", "r(), normalize]"))
    assert found["graph"][2]["normalize"]["mean"] == [127.5, 102.0, 76.5]
